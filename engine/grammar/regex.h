// Regular expressions as expressions of a grammar.
#ifndef TRIPTYCH_ENGINE_GRAMMAR_REGEX_H_
#define TRIPTYCH_ENGINE_GRAMMAR_REGEX_H_

#include <string_view>

#include "engine/grammar/expressions.h"
#include "engine/grammar/json_text.h"

namespace triptych::grammar {

// The syntax that RE2 and ECMAScript share: alternatives, groups (also named ones), classes, \d \w
// \s, repetitions, escapes, and ^ and $ at the ends. Boundaries, look-around, references, flags and
// \p are refused. Both functions throw GrammarError.

// The texts that match as a whole, by RE2's meaning of . and \s.
Expression ParseRegex(Expressions& expressions, std::string_view text);
// The contents of JSON strings whose values contain a match, by ECMAScript's meaning, as JSON
// Schema's `pattern`.
Expression ParsePattern(Expressions& expressions, JsonText& json, std::string_view text);

}  // namespace triptych::grammar

#endif  // TRIPTYCH_ENGINE_GRAMMAR_REGEX_H_
