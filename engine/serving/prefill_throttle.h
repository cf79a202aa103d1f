// Keeps generating sequences at their pace while prompts are computed. Torch-free.
#ifndef TRIPTYCH_ENGINE_SERVING_PREFILL_THROTTLE_H_
#define TRIPTYCH_ENGINE_SERVING_PREFILL_THROTTLE_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace triptych::serving {

// Learns from the steps' times what a step takes that only generates, and what each row of a prompt
// adds, and says how many such rows a step may have so that it takes at most `max_slowdown` times
// as long as it would without them, or kUnfelt. Where the least number of rows takes longer than
// that, steps without prompts follow until the steps together have taken no longer: whoever
// generates always does so at 1 / max_slowdown of the rate or more, or at 1 / kUnfelt. Not
// thread-safe; without a clock of its own.
class PrefillThrottle {
 public:
  using Duration = std::chrono::duration<double>;

  // Twice as long is the goal for the slowest in a hundred.
  static constexpr double kDefaultMaxSlowdown = 1.7;
  // Steps up to so long are not held back, so that the slowest in a hundred take 5 ms: 200 tokens a
  // second are faster than anybody reads, and prompts in crumbs take several times as long.
  static constexpr Duration kUnfelt = std::chrono::microseconds(3500);
  // Of so many steps with prompts one goes without, to learn anew what that takes.
  static constexpr int64_t kStepsBetweenMeasurements = 32;
  static constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

  // `max_slowdown`: above 1; infinity never holds prompts back.
  explicit PrefillThrottle(double max_slowdown = kDefaultMaxSlowdown)
      : max_slowdown_(max_slowdown) {}

  // How many rows of prompts the next step may have. `decode_rows`: how many sequences generate in
  // it. `others`: how long others that wait for this step can be kept waiting; zero if nobody does.
  // `least`: fewer make no sense; the result is none or at least as many.
  int64_t PromptRows(int64_t decode_rows, Duration others, int64_t least = 1) const;

  // What a step of so many rows took.
  void Record(int64_t decode_rows, int64_t prompt_rows, Duration took);

  // A step that only generates; zero before the first.
  Duration decode_step() const { return decode_.value(); }

 private:
  // How long a step may take beside those who generate.
  Duration Longest() const;

  // The median of the last few, so that a step during which the machine did something else counts
  // for nothing; zero before the first.
  class MovingMedian {
   public:
    void Add(Duration newest);
    Duration value() const { return value_; }

   private:
    std::array<Duration, 9> last_{};
    size_t count_ = 0;
    Duration value_{0};
  };

  double max_slowdown_;
  MovingMedian decode_;
  MovingMedian row_;         // what a row of a prompt adds
  Duration debt_{0};         // what steps with prompts have taken too long
  int64_t rows_ = 8;         // of the last step with prompts; the next has at most twice as many
  int64_t mixed_steps_ = 0;  // since one without prompts
};

}  // namespace triptych::serving

#endif  // TRIPTYCH_ENGINE_SERVING_PREFILL_THROTTLE_H_
