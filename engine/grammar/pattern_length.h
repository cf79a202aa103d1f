// Strings of a pattern, by their length.
#ifndef TRIPTYCH_ENGINE_GRAMMAR_PATTERN_LENGTH_H_
#define TRIPTYCH_ENGINE_GRAMMAR_PATTERN_LENGTH_H_

#include <cstdint>
#include <optional>

#include "engine/grammar/expressions.h"
#include "engine/grammar/json_text.h"

namespace triptych::grammar {

// Those texts of `content` that have between `min` and `max` characters; `max` may be
// Expressions::kUnbounded. Absent if the length of `content` varies in several places, or in a
// repetition of texts of different lengths, or if it has boundaries. REQUIRES: ParsePattern made
// `content` with `json`.
std::optional<Expression> WithLength(Expressions& expressions, const JsonText& json,
                                     Expression content, int32_t min, int32_t max);

}  // namespace triptych::grammar

#endif  // TRIPTYCH_ENGINE_GRAMMAR_PATTERN_LENGTH_H_
