// Regular expressions as expressions of a grammar.
#ifndef TRIPTYCH_ENGINE_GRAMMAR_REGEX_H_
#define TRIPTYCH_ENGINE_GRAMMAR_REGEX_H_

#include <string_view>

#include "engine/grammar/expressions.h"
#include "engine/grammar/json_text.h"

namespace triptych::grammar {

// RE2's syntax without \C; with larger counts, and all of ICU's names in \p. Repetitions are
// copied if there are boundaries (\b) or inner anchors. Both functions throw GrammarError.

// The texts that match as a whole, by RE2's meaning.
Expression ParseRegex(Expressions& expressions, std::string_view text);
// The contents of JSON strings whose values contain a match, by ECMAScript's meaning with
// the flag u, as JSON Schema's `pattern`; but with RE2's flags, and without look-around.
Expression ParsePattern(Expressions& expressions, JsonText& json, std::string_view text);

}  // namespace triptych::grammar

#endif  // TRIPTYCH_ENGINE_GRAMMAR_REGEX_H_
