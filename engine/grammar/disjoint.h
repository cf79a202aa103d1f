// Grammars without a common text.
#ifndef TRIPTYCH_ENGINE_GRAMMAR_DISJOINT_H_
#define TRIPTYCH_ENGINE_GRAMMAR_DISJOINT_H_

#include "engine/grammar/compile.h"

namespace triptych::grammar {

// True if it is certain that no text is one of both grammars, within a bound of work.
bool HaveNoCommonText(const Grammar& a, const Grammar& b);

}  // namespace triptych::grammar

#endif  // TRIPTYCH_ENGINE_GRAMMAR_DISJOINT_H_
