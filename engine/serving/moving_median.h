// Moving median of durations.
#ifndef TRIPTYCH_ENGINE_SERVING_MOVING_MEDIAN_H_
#define TRIPTYCH_ENGINE_SERVING_MOVING_MEDIAN_H_

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>

namespace triptych::serving {

// Median of the last 9 values, so that a step delayed by other work of the machine has no effect;
// zero before the first.
class MovingMedian {
 public:
  using Duration = std::chrono::duration<double>;

  void Add(Duration newest) {
    last_[count_++ % last_.size()] = newest;
    std::array<Duration, 9> order = last_;
    const auto end = order.begin() + std::min(count_, order.size());
    const auto middle = order.begin() + (end - order.begin()) / 2;
    std::nth_element(order.begin(), middle, end);
    value_ = *middle;
  }
  Duration value() const { return value_; }
  size_t count() const { return count_; }  // of all values added

 private:
  std::array<Duration, 9> last_{};
  size_t count_ = 0;
  Duration value_{0};
};

}  // namespace triptych::serving

#endif  // TRIPTYCH_ENGINE_SERVING_MOVING_MEDIAN_H_
