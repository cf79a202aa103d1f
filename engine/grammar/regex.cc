#include "engine/grammar/regex.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/quoted.h"
#include "engine/grammar/error.h"
#include "engine/grammar/limits.h"
#include "engine/grammar/scanner.h"

namespace triptych::grammar {
namespace {

const CharacterRanges kDigits = {{'0', '9'}};
const CharacterRanges kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CharacterRanges kRe2Space = {{'\t', '\n'}, {'\f', '\r'}, {' ', ' '}};
const CharacterRanges kEcmaSpace = {
    {'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
    {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};

class RegexParser final : Scanner {
 public:
  // `json`: null for RE2's meaning.
  RegexParser(Expressions& expressions, JsonText* json, std::string_view text)
      : Scanner(text), expressions_(expressions), json_(json) {}

  Expression Parse() {
    const Expression whole = Alternatives(0);
    if (at_ < text_.size()) Fail("a ) closes no group");
    return whole;
  }

 private:
  [[noreturn]] void Fail(const std::string& what) const override {
    throw GrammarError("is not a supported regular expression: " + what + " (at byte " +
                       std::to_string(at_) + ")");
  }

  Expression One(const CharacterRanges& ranges) {
    return json_ != nullptr ? json_->Characters(ranges) : expressions_.Characters(ranges);
  }

  Expression Alternatives(int depth) {
    if (depth > kMaxNesting) Fail("groups are nested too deeply");
    std::vector<Expression> alternatives = {Sequence(depth)};
    while (Take("|")) alternatives.push_back(Sequence(depth));
    return expressions_.Choice(std::move(alternatives));
  }

  // Takes an anchor at the beginning or end of a sequence. The outermost ones decide what may
  // surround a match.
  bool TakeAnchor(std::string_view sign, std::string_view escape, int depth) {
    if (!Take(sign) && !(json_ == nullptr && Take(escape))) return false;
    if (depth > 0) Fail("an anchor is inside of a group; allowed: at the ends");
    return true;
  }

  Expression Sequence(int depth) {
    std::vector<Expression> parts;
    const auto surroundings = [&](bool anchored) {
      if (json_ == nullptr || depth > 0 || anchored) return;
      parts.push_back(expressions_.Star(json_->Character()));
    };
    surroundings(TakeAnchor("^", "\\A", depth));
    bool ended = false;
    while (!done() && text_[at_] != '|' && text_[at_] != ')') {
      if (TakeAnchor("$", "\\z", depth)) {
        ended = true;
        if (!done() && text_[at_] != '|') Fail("$ is not at the end");
        break;
      }
      parts.push_back(Repeated(Atom(depth)));
    }
    surroundings(ended);
    return expressions_.Sequence(std::move(parts));
  }

  // A bound in braces; absent, with nothing taken, if the brace is a character.
  std::optional<std::pair<int32_t, int32_t>> TakeBounds() {
    const size_t begin = at_;
    if (Take("{")) {
      if (const auto min = TakeNumber()) {
        if (Take("}")) return std::pair(*min, *min);
        if (Take(",")) {
          const auto max = TakeNumber();
          if (Take("}")) return std::pair(*min, max.value_or(Expressions::kUnbounded));
        }
      }
    }
    at_ = begin;
    return std::nullopt;
  }

  Expression Repeated(Expression atom) {
    while (!done()) {
      if (Take("*")) {
        atom = expressions_.Star(atom);
      } else if (Take("+")) {
        atom = expressions_.Repeat(atom, 1, Expressions::kUnbounded);
      } else if (Take("?")) {
        atom = expressions_.Optional(atom);
      } else if (const auto bounds = TakeBounds()) {
        const auto [min, max] = *bounds;
        if (max != Expressions::kUnbounded && max < min) Fail("a repetition's bounds are reversed");
        atom = expressions_.Repeat(atom, min, max);
      } else {
        return atom;
      }
      if (Take("+")) Fail("possessive repetitions are not supported");
      Take("?");  // the shortest match first: the same texts
    }
    return atom;
  }

  Expression Group(int depth) {
    if (Take("?")) {
      const bool is_named = Take("P<") || (text_.substr(at_).starts_with("<") &&
                                           !text_.substr(at_).starts_with("<=") &&
                                           !text_.substr(at_).starts_with("<!") && Take("<"));
      if (is_named) {
        const size_t end = text_.find('>', at_);
        if (end == text_.npos) Fail("a group's name does not end");
        at_ = end + 1;
      } else if (!Take(":")) {
        Fail("look-around and flags are not supported");
      }
    }
    const Expression group = Alternatives(depth + 1);
    if (!Take(")")) Fail("a group does not end");
    return group;
  }

  Expression Atom(int depth) {
    if (Take("(")) return Group(depth);
    if (Take("[")) return One(Class());
    if (Take(".")) {
      return One(Complement(json_ != nullptr
                                ? CharacterRanges{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}
                                : CharacterRanges{{'\n', '\n'}}));
    }
    if (text_[at_] == '\\') return One(Escape(/*in_class=*/false));
    if (text_[at_] == '*' || text_[at_] == '+' || text_[at_] == '?') Fail("nothing to repeat");
    if (text_[at_] == '^') Fail("^ is not at the beginning");
    const char32_t character = TakeCharacter(text_, at_);
    if (json_ != nullptr) return One({{character, character}});
    return expressions_.Literal(ToUtf8(character));
  }

  CharacterRanges Escape(bool in_class) {
    ++at_;
    if (done()) Fail("a \\ escapes nothing");
    const char32_t character = TakeCharacter(text_, at_);
    const auto one = [](char32_t c) { return CharacterRanges{{c, c}}; };
    const CharacterRanges& space = json_ != nullptr ? kEcmaSpace : kRe2Space;
    switch (character) {
      case 'd':
        return kDigits;
      case 'D':
        return Complement(kDigits);
      case 'w':
        return kWord;
      case 'W':
        return Complement(kWord);
      case 's':
        return space;
      case 'S':
        return Complement(space);
      case 't':
        return one('\t');
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case 'b':
        if (in_class) return one('\b');
        break;
      case 'x':
        if (Take("{")) {
          const char32_t value = TakeHex(1, 6);
          if (!Take("}")) Fail("a \\x{ does not end");
          return one(value);
        }
        return one(TakeHex(2, 2));
      case 'u':
        if (json_ != nullptr) return one(TakeHex(4, 4));
        break;
      default:
        const bool is_letter_or_digit =
            character < 0x80 && std::any_of(kWord.begin(), kWord.end(), [&](const auto& range) {
              return character != '_' && character >= range.first && character <= range.second;
            });
        if (!is_letter_or_digit) return one(character);
    }
    Fail("\\" + Printable(ToUtf8(character)) + " is not supported");
  }

  // RE2's names of ASCII classes.
  std::optional<CharacterRanges> TakeNamedClass() {
    static const std::pair<std::string_view, CharacterRanges> kNamed[] = {
        {"[:alnum:]", {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}}},
        {"[:alpha:]", {{'A', 'Z'}, {'a', 'z'}}},
        {"[:digit:]", kDigits},
        {"[:lower:]", {{'a', 'z'}}},
        {"[:punct:]", {{'!', '/'}, {':', '@'}, {'[', '`'}, {'{', '~'}}},
        {"[:space:]", {{'\t', '\r'}, {' ', ' '}}},
        {"[:upper:]", {{'A', 'Z'}}},
        {"[:word:]", kWord},
        {"[:xdigit:]", {{'0', '9'}, {'A', 'F'}, {'a', 'f'}}}};
    if (json_ != nullptr) return std::nullopt;
    for (const auto& [name, ranges] : kNamed) {
      if (Take(name)) return ranges;
    }
    return std::nullopt;
  }

  CharacterRanges ClassItem() {
    if (const auto named = TakeNamedClass()) return *named;
    if (text_[at_] == '\\') return Escape(/*in_class=*/true);
    const char32_t character = TakeCharacter(text_, at_);
    return {{character, character}};
  }

  CharacterRanges Class() {
    const bool negated = Take("^");
    CharacterRanges ranges;
    const auto is_one = [](const CharacterRanges& item) {
      return item.size() == 1 && item.front().first == item.front().second;
    };
    // In RE2, a ] that comes first is a character.
    for (bool first = json_ == nullptr;; first = false) {
      if (done()) Fail("a [ does not end");
      if (!first && Take("]")) break;
      CharacterRanges item = ClassItem();
      if (is_one(item) && at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']') {
        ++at_;
        const CharacterRanges last = ClassItem();
        if (!is_one(last) || last.front().first < item.front().first) {
          Fail("a range of a class is not in order");
        }
        item.front().second = last.front().first;
      }
      ranges.insert(ranges.end(), item.begin(), item.end());
      if (ranges.size() > kMaxNodes) Fail("a class has too many parts");
    }
    ranges = Normalized(std::move(ranges));
    return negated ? Complement(ranges) : ranges;
  }

  Expressions& expressions_;
  JsonText* const json_;
};

}  // namespace

Expression ParseRegex(Expressions& expressions, std::string_view text) {
  return RegexParser(expressions, nullptr, text).Parse();
}

Expression ParsePattern(Expressions& expressions, JsonText& json, std::string_view text) {
  return RegexParser(expressions, &json, text).Parse();
}

}  // namespace triptych::grammar
