// Texts that two grammars have in common.
#ifndef TRIPTYCH_ENGINE_GRAMMAR_COMMON_TEXTS_H_
#define TRIPTYCH_ENGINE_GRAMMAR_COMMON_TEXTS_H_

#include <cstddef>
#include <optional>

#include "engine/grammar/compile.h"
#include "engine/grammar/expressions.h"

namespace triptych::grammar {

// Both functions take their work, in positions followed and bytes tried, from `work`, and fail if
// that is not enough.

// True if it is certain that no text is one of both grammars.
bool HaveNoCommonText(const Grammar& a, const Grammar& b, size_t& work);

// The texts of both grammars. Absent if they need more than kMaxCommonStates states.
std::optional<Expression> CommonTexts(Expressions& expressions, const Grammar& a, const Grammar& b,
                                      size_t& work);

}  // namespace triptych::grammar

#endif  // TRIPTYCH_ENGINE_GRAMMAR_COMMON_TEXTS_H_
