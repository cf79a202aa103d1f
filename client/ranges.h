// Parsing and description of numbers in a range.
#ifndef TRIPTYCH_CLIENT_RANGES_H_
#define TRIPTYCH_CLIENT_RANGES_H_

#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "engine/base/parse.h"
#include "engine/base/range.h"

namespace triptych::client {

// Parses all of `text` as a number in `range`.
template <typename T>
std::optional<T> ParseInRange(std::string_view text, const Range<T>& range) {
  const std::optional<T> value = ParseNumber<T>(text);
  return value && range.Contains(*value) ? value : std::nullopt;
}

// "1 to 20".
template <typename T>
std::string Describe(const Range<T>& range) {
  std::ostringstream text;
  text.precision(10);
  text << (range.above_low ? "above " : "") << range.low;
  text << (range.above_low ? ", up to " : " to ") << range.high;
  return text.str();
}

}  // namespace triptych::client

#endif  // TRIPTYCH_CLIENT_RANGES_H_
