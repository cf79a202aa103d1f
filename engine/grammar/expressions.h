// Expressions that describe texts, before compilation.
#ifndef TRIPTYCH_ENGINE_GRAMMAR_EXPRESSIONS_H_
#define TRIPTYCH_ENGINE_GRAMMAR_EXPRESSIONS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace triptych::grammar {

// Inclusive ranges of code points, ascending, disjoint and without surrogates.
using CharacterRanges = std::vector<std::pair<char32_t, char32_t>>;

inline constexpr char32_t kLastCharacter = 0x10FFFF;

// The ranges in order, merged, without surrogates.
CharacterRanges Normalized(CharacterRanges ranges);
// All other characters. REQUIRES: normalized.
CharacterRanges Complement(const CharacterRanges& ranges);
// REQUIRES: both are normalized.
CharacterRanges Intersection(const CharacterRanges& a, const CharacterRanges& b);

// The UTF-8 text of a character.
std::string ToUtf8(char32_t character);

// The character at `at`, which moves behind it. Throws GrammarError if it is not UTF-8. REQUIRES:
// at < text.size().
char32_t TakeCharacter(std::string_view text, size_t& at);

// An expression of an Expressions.
struct Expression {
  int32_t id = 0;
  friend bool operator==(Expression, Expression) = default;
};

// Expressions that may refer to each other. All functions that make one throw GrammarError beyond
// the bounds of limits.h.
class Expressions {
 public:
  static constexpr int32_t kUnbounded = -1;

  struct Item {
    enum Kind { kLiteral, kCharacters, kSequence, kChoice, kRepeat, kRule } kind;
    std::string literal = {};            // kLiteral; a rule's name
    CharacterRanges characters = {};     // kCharacters
    std::vector<Expression> parts = {};  // kSequence, kChoice; kRepeat: one; kRule: its body
    int32_t min = 0, max = 0;            // kRepeat
    int depth = 0;                       // of nesting, rules not counted
  };

  Expression Literal(std::string_view bytes);
  // One character of the ranges. REQUIRES: normalized. Without ranges, no text.
  Expression Characters(CharacterRanges ranges);
  Expression Sequence(std::vector<Expression> parts);
  // Without alternatives, no text.
  Expression Choice(std::vector<Expression> alternatives);
  Expression Repeat(Expression body, int32_t min, int32_t max);
  Expression Optional(Expression body) { return Repeat(body, 0, 1); }
  Expression Star(Expression body) { return Repeat(body, 0, kUnbounded); }
  // A rule without a body yet, for recursion. `name` is for messages.
  Expression Rule(std::string_view name);
  void Define(Expression rule, Expression body);

  // Counts ranges of characters that a text has named.
  void CountRanges(size_t ranges);

  const Item& operator[](Expression expression) const { return items_[expression.id]; }
  size_t size() const { return items_.size(); }

 private:
  Expression Add(Item item);

  std::vector<Item> items_;
  size_t literal_bytes_ = 0, ranges_ = 0;
};

}  // namespace triptych::grammar

#endif  // TRIPTYCH_ENGINE_GRAMMAR_EXPRESSIONS_H_
