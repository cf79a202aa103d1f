#include "engine/grammar/json_text.h"

#include <algorithm>
#include <map>

namespace triptych::grammar {
namespace {

constexpr int32_t kMaxIndent = 32;
// Digits of numbers: bounded, so that a number ends, and that a float64 holds it.
constexpr int32_t kMaxIntegerDigits = 15, kMaxFractionDigits = 15, kMaxExponentDigits = 2;

// Characters that a JSON string holds as they are.
const CharacterRanges kRaw = {
    {0x20, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, 0xD7FF}, {0xE000, kLastCharacter}};
const CharacterRanges kDigit = {{'0', '9'}};
const CharacterRanges kHex = {{'0', '9'}, {'A', 'F'}, {'a', 'f'}};

// A character that a string must escape, escaped.
std::string Escape(char32_t character) {
  switch (character) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
  }
  constexpr char kDigits[] = "0123456789abcdef";
  return std::string("\\u00") + kDigits[character >> 4] + kDigits[character & 15];
}

}  // namespace

Expression JsonText::Space() {
  if (!space_) {
    Expressions& e = expressions_;
    space_ = e.Rule("space");
    e.Define(
        *space_,
        e.Choice({e.Literal(""), e.Literal(" "),
                  e.Sequence({e.Literal("\n"), e.Repeat(e.Characters({{'\t', '\t'}, {' ', ' '}}), 0,
                                                        kMaxIndent)})}));
  }
  return *space_;
}

Expression JsonText::Character() {
  if (character_) return *character_;
  Expressions& e = expressions_;
  const Expression hex = e.Characters(kHex);
  const Expression d = e.Characters({{'D', 'D'}, {'d', 'd'}});
  const Expression upper = e.Characters({{'8', '9'}, {'A', 'B'}, {'a', 'b'}});
  const Expression lower = e.Characters({{'C', 'F'}, {'c', 'f'}});
  const CharacterRanges not_d = {{'0', '9'}, {'A', 'C'}, {'E', 'F'}, {'a', 'c'}, {'e', 'f'}};
  const Expression code =
      e.Choice({e.Sequence({e.Characters(not_d), hex, hex, hex}),
                e.Sequence({d, e.Characters({{'0', '7'}}), hex, hex}),
                // A pair of surrogates is one character; one alone is none.
                e.Sequence({d, upper, hex, hex, e.Literal("\\u"), d, lower, hex, hex})});
  const Expression simple = e.Characters(Normalized({{'"', '"'},
                                                     {'/', '/'},
                                                     {'\\', '\\'},
                                                     {'b', 'b'},
                                                     {'f', 'f'},
                                                     {'n', 'n'},
                                                     {'r', 'r'},
                                                     {'t', 't'}}));
  const Expression escape =
      e.Sequence({e.Literal("\\"), e.Choice({simple, e.Sequence({e.Literal("u"), code})})});
  character_ = e.Choice({e.Characters(kRaw), escape});
  made_.insert(character_->id);
  return *character_;
}

Expression JsonText::Characters(const CharacterRanges& ranges) {
  Expressions& e = expressions_;
  std::vector<Expression> alternatives;
  CharacterRanges raw = Intersection(ranges, kRaw);
  if (!raw.empty()) alternatives.push_back(e.Characters(std::move(raw)));
  for (const auto& [first, last] : Intersection(ranges, Complement(kRaw))) {
    for (char32_t character = first; character <= last; ++character) {
      alternatives.push_back(e.Literal(Escape(character)));
    }
  }
  const Expression character = e.Choice(std::move(alternatives));
  made_.insert(character.id);
  return character;
}

std::string JsonText::Escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20) {
      escaped += Escape(static_cast<unsigned char>(c));
    } else {
      escaped += c;
    }
  }
  return escaped;
}

Expression JsonText::Quoted(Expression content) {
  return expressions_.Sequence({expressions_.Literal("\""), content, expressions_.Literal("\"")});
}

Expression JsonText::Integer() {
  Expressions& e = expressions_;
  return e.Sequence({e.Optional(e.Literal("-")),
                     e.Choice({e.Literal("0"), e.Sequence({e.Characters({{'1', '9'}}),
                                                           e.Repeat(e.Characters(kDigit), 0,
                                                                    kMaxIntegerDigits - 1)})})});
}

Expression JsonText::Number() {
  Expressions& e = expressions_;
  const Expression digit = e.Characters(kDigit);
  return e.Sequence(
      {Integer(), e.Optional(e.Sequence({e.Literal("."), e.Repeat(digit, 1, kMaxFractionDigits)})),
       e.Optional(e.Sequence({e.Characters({{'E', 'E'}, {'e', 'e'}}),
                              e.Optional(e.Characters({{'+', '+'}, {'-', '-'}})),
                              e.Repeat(digit, 1, kMaxExponentDigits)}))});
}

Expression JsonText::KeyExcept(const std::vector<std::u32string_view>& names) {
  Expressions& e = expressions_;
  if (!raw_) raw_ = e.Star(e.Characters(kRaw));
  const bool is_name =
      std::any_of(names.begin(), names.end(), [](const auto& name) { return name.empty(); });
  std::map<char32_t, std::vector<std::u32string_view>> by_first;
  for (const std::u32string_view name : names) {
    if (!name.empty()) by_first[name.front()].push_back(name.substr(1));
  }
  std::vector<Expression> alternatives;
  if (!is_name) alternatives.push_back(e.Literal(""));
  CharacterRanges firsts;
  for (const auto& [first, rest] : by_first) {
    firsts.emplace_back(first, first);
    const Expression inner = e.Rule("key");
    e.Define(inner, KeyExcept(rest));
    alternatives.push_back(e.Sequence({e.Literal(ToUtf8(first)), inner}));
  }
  const CharacterRanges others = Complement(Normalized(std::move(firsts)));
  alternatives.push_back(e.Sequence({e.Characters(Intersection(others, kRaw)), *raw_}));
  return e.Choice(std::move(alternatives));
}

Expression JsonText::KeyExcept(const std::vector<std::string>& names) {
  std::vector<std::u32string> decoded;
  for (const std::string& name : names) {
    if (Escaped(name) != name) continue;  // no string without escapes is equal
    std::u32string& characters = decoded.emplace_back();
    for (size_t at = 0; at < name.size();) characters += TakeCharacter(name, at);
  }
  return Quoted(KeyExcept(std::vector<std::u32string_view>(decoded.begin(), decoded.end())));
}

Expression JsonText::Member(Expression key, Expression value) {
  return expressions_.Sequence({key, expressions_.Literal(":"), Space(), value});
}

Expression JsonText::Comma() { return expressions_.Sequence({expressions_.Literal(","), Space()}); }

Expression JsonText::Enclosed(std::string_view open, Expression content, std::string_view close) {
  Expressions& e = expressions_;
  return e.Sequence({e.Literal(open), content, Space(), e.Literal(close)});
}

Expression JsonText::List(Expression item, int32_t min, int32_t max) {
  Expressions& e = expressions_;
  if (max == 0) return min > 0 ? e.Choice({}) : e.Literal("");
  const bool unbounded = max == Expressions::kUnbounded;
  const Expression more =
      e.Repeat(e.Sequence({Comma(), item}), std::max(min - 1, 0), unbounded ? max : max - 1);
  const Expression some = e.Sequence({Space(), item, more});
  return min > 0 ? some : e.Optional(some);
}

Expression JsonText::AnyValue() {
  if (value_) return *value_;
  Expressions& e = expressions_;
  value_ = e.Rule("value");
  e.Define(*value_, e.Choice({AnyObject(), AnyArray(), String(), Number(), e.Literal("true"),
                              e.Literal("false"), e.Literal("null")}));
  return *value_;
}

Expression JsonText::AnyObject() {
  return Object(List(Member(String(), AnyValue()), 0, Expressions::kUnbounded));
}

Expression JsonText::AnyArray() { return Array(List(AnyValue(), 0, Expressions::kUnbounded)); }

}  // namespace triptych::grammar
