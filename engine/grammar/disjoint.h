// Grammars without a common text.
#ifndef TRIPTYCH_ENGINE_GRAMMAR_DISJOINT_H_
#define TRIPTYCH_ENGINE_GRAMMAR_DISJOINT_H_

#include <cstddef>

#include "engine/grammar/compile.h"

namespace triptych::grammar {

// True if it is certain that no text is one of both grammars. Takes its work, in positions followed
// and bytes tried, from `work`; false if that is not enough.
bool HaveNoCommonText(const Grammar& a, const Grammar& b, size_t& work);

}  // namespace triptych::grammar

#endif  // TRIPTYCH_ENGINE_GRAMMAR_DISJOINT_H_
