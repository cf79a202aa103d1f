// JSON numbers within bounds.
#ifndef TRIPTYCH_ENGINE_GRAMMAR_JSON_NUMBER_H_
#define TRIPTYCH_ENGINE_GRAMMAR_JSON_NUMBER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/expressions.h"

namespace triptych::grammar {

// A bound, as a decimal number without exponent: "-12.5".
struct DecimalBound {
  std::string value;
  bool exclusive = false;
};

// units / 10^decimals
struct DecimalStep {
  int64_t units = 1;
  int decimals = 0;
};

// A decimal number without exponent, with as few decimals as it needs. Absent if it is negative or
// 0, or if its digits are no int64.
std::optional<DecimalStep> StepOf(std::string_view decimal);

// Numbers between the bounds, at least one of which is given, without exponents. `decimals`, if
// given, bounds the digits after the point; without an upper bound, numbers then have as many
// digits as multiples do. -0 is none of them.
Expression NumberBetween(Expressions& expressions, const std::optional<DecimalBound>& low,
                         const std::optional<DecimalBound>& high, std::optional<int> decimals);

bool IsZero(const DecimalBound& bound);

// Multiples of the step, with negative ones or without: with 15 digits, or 12 if it has decimals.
// Those are the digits for which a validator that divides in float64 is right to 1e-3. REQUIRES:
// at most 11 decimals.
Expression MultipleOf(Expressions& expressions, DecimalStep step, bool negative = true);

// The multiples of the step between the bounds, ascending. Absent if a bound has more digits than
// a float64 tells apart, or if there may be more than 2^16. REQUIRES: at most 11 decimals.
std::optional<std::vector<std::string>> MultiplesBetween(const DecimalBound& low,
                                                         const DecimalBound& high,
                                                         DecimalStep step);

}  // namespace triptych::grammar

#endif  // TRIPTYCH_ENGINE_GRAMMAR_JSON_NUMBER_H_
