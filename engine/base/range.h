// Range of allowed numbers.
#ifndef TRIPTYCH_ENGINE_BASE_RANGE_H_
#define TRIPTYCH_ENGINE_BASE_RANGE_H_

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

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BASE_RANGE_H_
