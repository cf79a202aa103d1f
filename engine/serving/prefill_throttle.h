// Limit on prefill that protects decode latency.
#ifndef TRIPTYCH_ENGINE_SERVING_PREFILL_THROTTLE_H_
#define TRIPTYCH_ENGINE_SERVING_PREFILL_THROTTLE_H_

#include <chrono>
#include <cstdint>
#include <limits>

#include "engine/serving/moving_median.h"

namespace triptych::serving {

// Limits prefill so that a mixed step takes at most `max_slowdown` times a decode-only step, or
// kUnfelt if that is longer. Fits the decode time and the cost of a prefill row from measured
// steps.
//
// If even the least number of rows takes longer, decode-only steps follow until all these steps
// together are within the limit. Decoding thus keeps at least 1 / max_slowdown of its rate, or one
// step per kUnfelt. Not thread-safe; has no clock of its own.
class PrefillThrottle {
 public:
  using Duration = std::chrono::duration<double>;

  // Chosen so that the p99 step takes at most twice a decode-only step.
  static constexpr double kDefaultMaxSlowdown = 1.7;
  // Steps up to this long are never limited, so that the p99 step takes 5 ms. 200 tokens per second
  // are faster than anybody reads, and prefill in tiny chunks takes several times as long.
  static constexpr Duration kUnfelt = std::chrono::microseconds(3500);
  // After this many mixed steps, one step runs decode-only, to measure the decode time again.
  static constexpr int64_t kStepsBetweenMeasurements = 32;
  static constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

  // `max_slowdown`: above 1; infinity never limits prefill.
  explicit PrefillThrottle(double max_slowdown = kDefaultMaxSlowdown)
      : max_slowdown_(max_slowdown) {}

  // Maximum number of prefill rows in the next step. `decode_rows`: sequences that decode in it.
  // `others`: decode latency budget of other engines that wait for the step; zero if none does.
  // `least`: the fewest rows worth computing; the result is 0 or at least `least`.
  int64_t PromptRows(int64_t decode_rows, Duration others, int64_t least = 1) const;

  // Records the duration of a step with these rows.
  void Record(int64_t decode_rows, int64_t prompt_rows, Duration took);

  // Median time of a decode-only step; zero before the first.
  Duration decode_step() const { return decode_.value(); }

 private:
  // Time limit of a mixed step.
  Duration Longest() const;

  double max_slowdown_;
  MovingMedian decode_;
  MovingMedian row_;         // cost of a prefill row
  Duration debt_{0};         // excess time of mixed steps
  int64_t rows_ = 8;         // in recent steps with prefill; the next has at most twice that
  int64_t mixed_steps_ = 0;  // since the last decode-only step
};

}  // namespace triptych::serving

#endif  // TRIPTYCH_ENGINE_SERVING_PREFILL_THROTTLE_H_
