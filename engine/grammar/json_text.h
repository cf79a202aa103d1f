// Expressions of JSON's texts.
#ifndef TRIPTYCH_ENGINE_GRAMMAR_JSON_TEXT_H_
#define TRIPTYCH_ENGINE_GRAMMAR_JSON_TEXT_H_

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/expressions.h"

namespace triptych::grammar {

// Makes expressions of JSON (RFC 8259). Between tokens they have no whitespace, one space, or a
// line break with up to 32 spaces and tabs, so that whitespace ends.
class JsonText {
 public:
  explicit JsonText(Expressions& expressions) : expressions_(expressions) {}

  Expression Space();
  // A character inside a string's quotation marks, escaped or not.
  Expression Character();
  // Characters of the ranges inside a string, escaped only where they must be. REQUIRES:
  // normalized.
  Expression Characters(const CharacterRanges& ranges);
  // True of what Character and Characters have made.
  bool IsCharacter(Expression expression) const { return made_.contains(expression.id); }
  // `text` inside of a string, without quotation marks, as JSON.stringify writes it.
  static std::string Escaped(std::string_view text);
  Expression Quoted(Expression content);
  Expression String() { return Quoted(expressions_.Star(Character())); }
  Expression Number();
  Expression Integer();
  // A string without escapes that is none of `names`.
  Expression KeyExcept(const std::vector<std::string>& names);
  // "key": value
  Expression Member(Expression key, Expression value);
  // The members and items have Space() before the first, if there is one.
  Expression Object(Expression members) { return Enclosed("{", members, "}"); }
  Expression Array(Expression items) { return Enclosed("[", items, "]"); }
  // Between `min` and `max` items, separated by commas, with Space() before the first.
  Expression List(Expression item, int32_t min, int32_t max);
  Expression Comma();
  Expression AnyValue();
  Expression AnyObject();
  Expression AnyArray();

 private:
  Expression Enclosed(std::string_view open, Expression content, std::string_view close);
  Expression KeyExcept(const std::vector<std::u32string_view>& names);

  Expressions& expressions_;
  std::optional<Expression> space_, character_, value_, raw_;
  std::set<int32_t> made_;  // expressions of one character
};

}  // namespace triptych::grammar

#endif  // TRIPTYCH_ENGINE_GRAMMAR_JSON_TEXT_H_
