// JSON numbers within bounds.
#ifndef TRIPTYCH_ENGINE_GRAMMAR_JSON_NUMBER_H_
#define TRIPTYCH_ENGINE_GRAMMAR_JSON_NUMBER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "engine/grammar/expressions.h"

namespace triptych::grammar {

// A bound, as a decimal number without exponent: "-12.5".
struct DecimalBound {
  std::string value;
  bool exclusive = false;
};

// Numbers between the bounds, at least one of which is given, without exponents. With `integer`,
// those without fraction. -0 is none of them.
Expression NumberBetween(Expressions& expressions, const std::optional<DecimalBound>& low,
                         const std::optional<DecimalBound>& high, bool integer);

// Integers that are multiples of `divisor`. REQUIRES: divisor > 0.
Expression MultipleOf(Expressions& expressions, int64_t divisor);

}  // namespace triptych::grammar

#endif  // TRIPTYCH_ENGINE_GRAMMAR_JSON_NUMBER_H_
