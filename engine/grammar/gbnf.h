// GBNF, the grammars of llama.cpp.
#ifndef TRIPTYCH_ENGINE_GRAMMAR_GBNF_H_
#define TRIPTYCH_ENGINE_GRAMMAR_GBNF_H_

#include <string_view>

#include "engine/grammar/expressions.h"

namespace triptych::grammar {

// The rule `root`. Throws GrammarError, with the line.
Expression ParseGbnf(Expressions& expressions, std::string_view text);

}  // namespace triptych::grammar

#endif  // TRIPTYCH_ENGINE_GRAMMAR_GBNF_H_
