// Patterns whose counted repetitions read a text in too many ways.
#ifndef TRIPTYCH_ENGINE_GRAMMAR_READINGS_H_
#define TRIPTYCH_ENGINE_GRAMMAR_READINGS_H_

#include <cstddef>

#include "engine/grammar/expressions.h"

namespace triptych::grammar {

// Throws GrammarError if a text of the pattern is found that needs more than kMaxPositions of a
// matcher, as many texts of (\w{1,30} ?){1,40} do: the matcher would refuse them. Tries one text,
// of bytes that most positions read. Takes its work, in nodes compiled and positions followed, from
// `work`, and ends without a finding when that is used up.
void CheckReadings(const Expressions& expressions, Expression pattern, size_t& work);

}  // namespace triptych::grammar

#endif  // TRIPTYCH_ENGINE_GRAMMAR_READINGS_H_
