// JSON numbers within bounds.
#ifndef TRIPTYCH_ENGINE_GRAMMAR_JSON_NUMBER_H_
#define TRIPTYCH_ENGINE_GRAMMAR_JSON_NUMBER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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

bool IsZero(const DecimalBound& bound);

// Integers that are multiples of `divisor`, with negative ones or without. REQUIRES: divisor > 0.
Expression MultipleOf(Expressions& expressions, int64_t divisor, bool negative = true);

// The multiples of `divisor` between the bounds, ascending. Absent if a bound has more digits than
// a float64 tells apart, or if there may be more than 2^16. REQUIRES: divisor > 0.
std::optional<std::vector<int64_t>> MultiplesBetween(const DecimalBound& low,
                                                     const DecimalBound& high, int64_t divisor);

}  // namespace triptych::grammar

#endif  // TRIPTYCH_ENGINE_GRAMMAR_JSON_NUMBER_H_
