// Texts of grammars, for tests.
#ifndef TRIPTYCH_TESTS_GRAMMAR_TEXTS_H_
#define TRIPTYCH_TESTS_GRAMMAR_TEXTS_H_

#include <memory>
#include <string>
#include <string_view>

#include "engine/grammar/compile.h"
#include "engine/grammar/error.h"
#include "engine/grammar/gbnf.h"
#include "engine/grammar/json_schema.h"
#include "engine/grammar/matcher.h"
#include "engine/grammar/regex.h"

namespace triptych::grammar {

template <typename Parse>
std::shared_ptr<const Grammar> CompileText(const Parse& parse, std::string_view text) {
  Expressions expressions;
  const Expression start = parse(expressions, text);
  return std::make_shared<const Grammar>(Compile(expressions, start));
}

inline std::shared_ptr<const Grammar> Schema(std::string_view text) {
  return CompileText(ParseJsonSchema, text);
}
inline std::shared_ptr<const Grammar> Regex(std::string_view text) {
  return CompileText(ParseRegex, text);
}
inline std::shared_ptr<const Grammar> Gbnf(std::string_view text) {
  return CompileText(ParseGbnf, text);
}

// True if `text` is one of the grammar's.
inline bool Has(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  Matcher matcher(grammar);
  return matcher.Advance(text) && matcher.MayEnd();
}

// The path and message of the error of a text.
template <typename Compile>
std::string Refusal(const Compile& compile, std::string_view text) {
  try {
    compile(text);
  } catch (const GrammarError& error) {
    return error.path() + " " + error.what();
  }
  return "";
}

}  // namespace triptych::grammar

#endif  // TRIPTYCH_TESTS_GRAMMAR_TEXTS_H_
