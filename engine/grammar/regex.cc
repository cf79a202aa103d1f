#include "engine/grammar/regex.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/quoted.h"
#include "engine/grammar/boundaries.h"
#include "engine/grammar/error.h"
#include "engine/grammar/limits.h"
#include "engine/grammar/readings.h"
#include "engine/grammar/scanner.h"
#include "engine/grammar/unicode_classes.h"

namespace triptych::grammar {
namespace {

const CharacterRanges kDigits = {{'0', '9'}};
const CharacterRanges kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CharacterRanges kRe2Newlines = {{'\n', '\n'}};
const CharacterRanges kEcmaNewlines = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
const CharacterRanges kRe2Space = {{'\t', '\n'}, {'\f', '\r'}, {' ', ' '}};
const CharacterRanges kEcmaSpace = {
    {'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
    {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};

struct AsciiClass {
  std::string_view name;
  CharacterRanges ranges;
};
// RE2's ASCII classes.
const std::vector<AsciiClass>& AsciiClasses() {
  static const std::vector<AsciiClass> classes = {
      {"alnum", {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}}},
      {"alpha", {{'A', 'Z'}, {'a', 'z'}}},
      {"ascii", {{0, 0x7F}}},
      {"blank", {{'\t', '\t'}, {' ', ' '}}},
      {"cntrl", {{0, 0x1F}, {0x7F, 0x7F}}},
      {"digit", kDigits},
      {"graph", {{'!', '~'}}},
      {"lower", {{'a', 'z'}}},
      {"print", {{' ', '~'}}},
      {"punct", {{'!', '/'}, {':', '@'}, {'[', '`'}, {'{', '~'}}},
      {"space", {{'\t', '\r'}, {' ', ' '}}},
      {"upper", {{'A', 'Z'}}},
      {"word", kWord},
      {"xdigit", {{'0', '9'}, {'A', 'F'}, {'a', 'f'}}}};
  return classes;
}

// Ranges that a class of Unicode counts as in addition to its own, for finding it by its name.
constexpr size_t kUnicodeClassRanges = 64;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetter(char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }

class RegexParser final : Scanner {
 public:
  // `json`: null for RE2's meaning.
  RegexParser(Expressions& expressions, JsonText* json, std::string_view text)
      : Scanner(text), expressions_(expressions), json_(json) {
    bounded_.newlines = json != nullptr ? kEcmaNewlines : kRe2Newlines;
    bounded_.word = kWord;
  }

  Expression Parse() {
    bounded_.whole = Alternatives(0);
    if (at_ < text_.size()) Fail("a ) closes no group");
    if (conditions_ == 0) return bounded_.whole;
    return WithBoundaries(expressions_, bounded_,
                          [this](const CharacterRanges& ranges) { return Made(ranges); });
  }

 private:
  struct Flags {
    bool fold_case = false, multi_line = false, dot_all = false;
  };

  [[noreturn]] void Fail(const std::string& what) const override {
    throw GrammarError("is not a supported regular expression: " + what + " (at byte " +
                       std::to_string(at_) + ")");
  }

  bool is_re2() const { return json_ == nullptr; }
  bool IsNext(std::string_view token) const { return text_.substr(at_).starts_with(token); }

  Expression Made(const CharacterRanges& ranges) {
    if (json_ != nullptr) return json_->Characters(ranges);
    if (IsOne(ranges)) return expressions_.Literal(ToUtf8(ranges.front().first));
    return expressions_.Characters(ranges);
  }

  Expression One(CharacterRanges ranges) {
    const Expression one = Made(ranges);
    bounded_.characters.emplace(one.id, std::move(ranges));
    return one;
  }
  Expression Literal(char32_t character) { return One(Folded({{character, character}})); }

  static bool IsOne(const CharacterRanges& ranges) {
    return ranges.size() == 1 && ranges.front().first == ranges.front().second;
  }

  // The ranges as the flags have them.
  CharacterRanges Folded(CharacterRanges ranges) {
    expressions_.CountRanges(ranges.size());
    if (!flags_.fold_case) return ranges;
    expressions_.CountRanges(CasedCharacters(ranges));
    return CaseClosed(ranges);
  }
  CharacterRanges Set(CharacterRanges ranges, bool negated) {
    ranges = Folded(std::move(ranges));
    return negated ? Complement(ranges) : ranges;
  }

  Expression Condition(Boundary boundary) {
    ++conditions_;
    const Expression condition = expressions_.Rule("boundary");
    bounded_.boundaries.emplace(condition.id, boundary);
    return condition;
  }
  // True if it is the condition, which is then dropped.
  bool Drop(Expression part, Boundary boundary) {
    const auto found = bounded_.boundaries.find(part.id);
    if (found == bounded_.boundaries.end() || found->second != boundary) return false;
    --conditions_;
    return true;
  }

  Expression Alternatives(int depth) {
    if (depth > kMaxNesting) Fail("groups are nested too deeply");
    std::vector<Expression> alternatives = {Sequence(depth)};
    while (Take("|")) alternatives.push_back(Sequence(depth));
    return expressions_.Choice(std::move(alternatives));
  }

  Expression Sequence(int depth) {
    std::vector<Expression> parts;
    bool repeated = false;  // by what was taken last
    while (!done() && text_[at_] != '|' && text_[at_] != ')') {
      const auto bounds = TakeRepetition();
      if (bounds) {
        if (parts.empty()) Fail("nothing to repeat");
        if (repeated) Fail("a repetition is repeated without a group");
        parts.back() = expressions_.Repeat(parts.back(), bounds->first, bounds->second);
      } else if (Take("(")) {
        if (const auto group = Group(depth)) parts.push_back(*group);
      } else if (is_re2() && Take("\\Q")) {
        while (!done() && !Take("\\E")) parts.push_back(Literal(TakeCharacter(text_, at_)));
      } else {
        parts.push_back(Atom());
      }
      repeated = bounds.has_value();
    }
    if (depth == 0) FreeEnds(parts);
    return expressions_.Sequence(std::move(parts));
  }

  // Takes anchors off the ends of an outermost sequence, and lets any text be where there is none.
  void FreeEnds(std::vector<Expression>& parts) {
    const auto first = std::find_if_not(parts.begin(), parts.end(), [&](Expression part) {
      return Drop(part, Boundary::kTextBegin);
    });
    const bool begins = first != parts.begin();
    parts.erase(parts.begin(), first);
    bool ends = false;
    for (; !parts.empty() && Drop(parts.back(), Boundary::kTextEnd); parts.pop_back()) ends = true;
    if (is_re2()) return;
    const Expression character = json_->Character();
    bounded_.characters.emplace(character.id, Complement({}));
    if (!begins) parts.insert(parts.begin(), expressions_.Star(character));
    if (!ends) parts.push_back(expressions_.Star(character));
  }

  using Bounds = std::pair<int32_t, int32_t>;

  // A bound in braces; absent, with nothing taken, if the brace is a character.
  std::optional<Bounds> TakeBounds() {
    const size_t begin = at_;
    if (Take("{")) {
      if (const auto min = TakeCount()) {
        if (Take("}")) return Bounds(*min, *min);
        if (Take(",")) {
          const auto max = TakeCount();
          if (Take("}")) return Bounds(*min, max.value_or(Expressions::kUnbounded));
        }
      }
    }
    at_ = begin;
    return std::nullopt;
  }
  // RE2 has no counts with leading zeros.
  std::optional<int32_t> TakeCount() {
    const std::string_view digits = text_.substr(at_, 2);
    if (is_re2() && digits.size() == 2 && digits[0] == '0' && IsDigit(digits[1])) {
      return std::nullopt;
    }
    return TakeNumber();
  }

  // Absent, with nothing taken, if no repetition is next.
  std::optional<Bounds> TakeRepetition() {
    std::optional<Bounds> bounds;
    if (Take("*")) {
      bounds = {0, Expressions::kUnbounded};
    } else if (Take("+")) {
      bounds = {1, Expressions::kUnbounded};
    } else if (Take("?")) {
      bounds = {0, 1};
    } else {
      bounds = TakeBounds();
    }
    if (!bounds) return std::nullopt;
    if (bounds->second != Expressions::kUnbounded && bounds->second < bounds->first) {
      Fail("a repetition's bounds are reversed");
    }
    if (Take("+")) Fail("possessive repetitions are not supported");
    Take("?");  // the shortest match first: the same texts
    return bounds;
  }

  // A group after its "("; absent if it only sets flags.
  std::optional<Expression> Group(int depth) {
    const Flags outside = flags_;
    if (Take("?") && !TakeName() && !TakeFlags()) return std::nullopt;
    const Expression group = Alternatives(depth + 1);
    if (!Take(")")) Fail("a group does not end");
    flags_ = outside;
    return group;
  }

  bool TakeName() {
    for (const char* const sign : {"=", "!", "<=", "<!"}) {
      if (IsNext(sign)) Fail("look-around is not supported");
    }
    if (IsNext("P=")) Fail("back-references are not supported");
    if (!Take("P<") && !Take("<")) return false;
    const size_t end = text_.find('>', at_);
    if (end == text_.npos) Fail("a group's name does not end");
    const std::string_view name = text_.substr(at_, end - at_);
    const bool is_name = !name.empty() && std::ranges::all_of(name, [](char c) {
      return IsLetter(c) || IsDigit(c) || c == '_' || static_cast<unsigned char>(c) >= 0x80;
    });
    if (is_re2() && !is_name) Fail("no group can have the name " + Quoted(name));
    at_ = end + 1;
    return true;
  }

  // Flags up to their end: true if a group follows for which they are.
  bool TakeFlags() {
    bool value = true;
    for (; !done(); ++at_) {
      switch (text_[at_]) {
        case 'i':
          flags_.fold_case = value;
          break;
        case 'm':
          flags_.multi_line = value;
          break;
        case 's':
          flags_.dot_all = value;
          break;
        case 'U':  // prefers other matches: the same texts
          break;
        case '-':
          if (!value) Fail("flags are negated twice");
          value = false;
          break;
        case ':':
        case ')':
          if (text_[at_ - 1] == '-') Fail("(?- negates no flag");
          return text_[at_++] == ':';
        default:
          Fail("(? begins no group; allowed: a name, and the flags i, m, s and U");
      }
    }
    Fail("a group does not end");
  }

  Expression Atom() {
    if (Take("[")) return One(Class());
    if (Take(".")) return One(Complement(flags_.dot_all ? CharacterRanges{} : bounded_.newlines));
    if (Take("^")) {
      return Condition(flags_.multi_line ? Boundary::kLineBegin : Boundary::kTextBegin);
    }
    if (Take("$")) return Condition(flags_.multi_line ? Boundary::kLineEnd : Boundary::kTextEnd);
    if (Take("\\b")) return Condition(Boundary::kWord);
    if (Take("\\B")) return Condition(Boundary::kNoWord);
    if (is_re2() && Take("\\A")) return Condition(Boundary::kTextBegin);
    if (is_re2() && Take("\\z")) return Condition(Boundary::kTextEnd);
    if (auto set = TakeEscapedSet()) return One(*std::move(set));
    return Literal(Character(/*in_class=*/false));
  }

  // A set that a \ begins, as the flags have it; absent, with nothing taken, without one.
  std::optional<CharacterRanges> TakeEscapedSet() {
    if (!IsNext("\\") || at_ + 1 == text_.size()) return std::nullopt;
    const char letter = text_[at_ + 1];
    const bool negated = letter >= 'A' && letter <= 'Z';
    switch (letter) {
      case 'd':
      case 'D':
        at_ += 2;
        return Set(kDigits, negated);
      case 'w':
      case 'W':
        at_ += 2;
        return Set(kWord, negated);
      case 's':
      case 'S':
        at_ += 2;
        return Set(is_re2() ? kRe2Space : kEcmaSpace, negated);
      case 'p':
      case 'P':
        at_ += 2;
        return UnicodeSet(negated);
      default:
        return std::nullopt;
    }
  }

  // A character, also escaped. REQUIRES: !done().
  char32_t Character(bool in_class) {
    if (!Take("\\")) return TakeCharacter(text_, at_);
    if (done()) Fail("a \\ escapes nothing");
    const size_t begin = at_;
    const char32_t character = TakeCharacter(text_, at_);
    switch (character) {
      case 't':
        return '\t';
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 'f':
        return '\f';
      case 'v':
        return '\v';
      case 'a':
        if (is_re2()) return '\a';
        break;
      case 'b':
        if (in_class && !is_re2()) return '\b';
        break;
      case 'c':
        if (!is_re2() && !done() && IsLetter(text_[at_])) return text_[at_++] & 0x1F;
        break;
      case 'x':
        if (Take("{")) return TakeBracedHex();
        return TakeHex(2, 2);
      case 'u':
        if (!is_re2()) return TakeUtf16();
        break;
      case 'k':
        Fail("back-references are not supported");
      default:
        if (IsDigit(text_[begin])) return TakeOctal(begin);
        if (character >= 0x80 ? !is_re2() : !IsLetter(text_[begin])) return character;
    }
    Fail("\\" + Printable(ToUtf8(character)) + " is not supported");
  }

  // RE2 has numbers of up to three octal digits, ECMAScript only 0.
  char32_t TakeOctal(size_t begin) {
    at_ = begin;
    char32_t value = 0;
    while (at_ < begin + (is_re2() ? 3 : 1) && !done() && IsDigit(text_[at_]) && text_[at_] < '8') {
      value = value * 8 + (text_[at_++] - '0');
    }
    const bool is_number = text_[begin] == '0' || (is_re2() && at_ > begin + 1);
    if (!is_number || (!is_re2() && !done() && IsDigit(text_[at_]))) {
      Fail("back-references are not supported");
    }
    return value;
  }

  char32_t TakeBracedHex() {
    const char32_t value = TakeHex(1, 8);
    if (!Take("}")) Fail("a number in braces does not end");
    return value;
  }

  // A character after \u: in braces, or one or two units of UTF-16.
  char32_t TakeUtf16() {
    if (Take("{")) return TakeBracedHex();
    const size_t begin = at_;
    const char32_t high = TakeHexNumber(4, 4);
    if (high < 0xD800 || high > 0xDFFF) return high;
    if (high < 0xDC00 && Take("\\u")) {
      const char32_t low = TakeHexNumber(4, 4);
      if (low >= 0xDC00 && low <= 0xDFFF) return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    }
    at_ = begin;
    Fail("a surrogate is alone");
  }

  CharacterRanges UnicodeSet(bool negated) {
    std::string_view name = text_.substr(at_, 1);
    if (Take("{")) {
      const size_t end = text_.find('}', at_);
      if (end == text_.npos) Fail("a \\p{ does not end");
      name = text_.substr(at_, end - at_);
      at_ = end + 1;
      if (name.starts_with('^')) {
        negated = !negated;
        name.remove_prefix(1);
      }
    } else {
      at_ += name.size();
    }
    expressions_.CountRanges(kUnicodeClassRanges);
    // RE2 counts no unassigned characters among the others, ECMAScript does.
    if (is_re2() && name == "C") {
      static const CharacterRanges assigned =
          Intersection(*UnicodeClass("C"), *UnicodeClass("Assigned"));
      return Set(assigned, negated);
    }
    auto ranges = UnicodeClass(name);
    if (!ranges) Fail("\\p{" + Printable(name) + "} is no known class");
    return Set(*std::move(ranges), negated);
  }

  // One of RE2's ASCII classes.
  std::optional<CharacterRanges> TakeAsciiClass() {
    if (!is_re2() || !IsNext("[:")) return std::nullopt;
    const size_t begin = at_ + 2;
    if (class_end_ < begin) class_end_ = text_.find(":]", begin);
    if (class_end_ == text_.npos) return std::nullopt;
    std::string_view name = text_.substr(begin, class_end_ - begin);
    const bool negated = name.starts_with('^');
    name.remove_prefix(negated ? 1 : 0);
    for (const auto& [known, ranges] : AsciiClasses()) {
      if (known != name) continue;
      at_ = class_end_ + 2;
      return Set(ranges, negated);
    }
    Fail("no class has the name " + Quoted(name));
  }

  // A character of a class, or a range of them.
  CharacterRanges ClassRange() {
    const char32_t first = Character(/*in_class=*/true);
    char32_t last = first;
    if (at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']') {
      ++at_;
      if (TakeEscapedSet()) Fail("a range of a class ends with a set");
      last = Character(/*in_class=*/true);
      if (last < first) Fail("a range of a class is not in order");
    }
    return Folded(Normalized({{first, last}}));
  }

  CharacterRanges Class() {
    const bool negated = Take("^");
    CharacterRanges ranges;
    // In RE2, a ] that comes first is a character.
    for (bool first = is_re2();; first = false) {
      if (done()) Fail("a [ does not end");
      if (!first && Take("]")) break;
      auto set = TakeAsciiClass();
      if (!set) set = TakeEscapedSet();
      const CharacterRanges item = set ? *std::move(set) : ClassRange();
      ranges.insert(ranges.end(), item.begin(), item.end());
      if (ranges.size() > kMaxNodes) Fail("a class has too many parts");
    }
    ranges = Normalized(std::move(ranges));
    return negated ? Complement(ranges) : ranges;
  }

  Expressions& expressions_;
  JsonText* const json_;
  Flags flags_;
  BoundedExpression bounded_;
  size_t class_end_ = 0;  // the first ":]" behind the last "[:" of a class
  int conditions_ = 0;    // of bounded_, those that were not dropped
};

}  // namespace

Expression ParseRegex(Expressions& expressions, std::string_view text) {
  const Expression expression = RegexParser(expressions, nullptr, text).Parse();
  size_t work = kMaxReadingSteps;
  CheckReadings(expressions, expression, work);
  return expression;
}

Expression ParsePattern(Expressions& expressions, JsonText& json, std::string_view text) {
  return RegexParser(expressions, &json, text).Parse();
}

}  // namespace triptych::grammar
