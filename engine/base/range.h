// Range of allowed numbers.
#ifndef TRIPTYCH_ENGINE_BASE_RANGE_H_
#define TRIPTYCH_ENGINE_BASE_RANGE_H_

#include <concepts>
#include <sstream>
#include <string>

namespace triptych {

// The values from `low` to `high`; `above_low` excludes `low`.
template <typename T>
struct Range {
  T low;
  T high;
  bool above_low = false;

  constexpr bool Contains(T value) const {
    return (above_low ? value > low : value >= low) && value <= high;  // NaN is in none
  }
};

// "an integer from 1 to 8", "a number above 0 and at most 1", for messages.
template <typename T>
std::string Described(const Range<T>& range) {
  std::ostringstream text;
  text << (std::integral<T> ? "an integer " : "a number ") << (range.above_low ? "above " : "from ")
       << range.low << (range.above_low ? " and at most " : " to ") << range.high;
  return text.str();
}

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BASE_RANGE_H_
