// Progress of a long run of steps, on stderr.
#ifndef TRIPTYCH_ENGINE_TOOLS_PROGRESS_H_
#define TRIPTYCH_ENGINE_TOOLS_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <string>

namespace triptych::tools {

// Shows one line: rewritten in place on a terminal, else printed every 50 steps.
class Progress {
 public:
  // Steps from `first` to `steps`.
  Progress(int64_t first, int64_t steps, int64_t tokens_per_step);

  // `done`: steps done; `loss`: of the last one.
  void Show(int64_t done, double loss);
  // Prints a permanent line above the progress line.
  void Say(const std::string& line);

 private:
  using Clock = std::chrono::steady_clock;

  int64_t first_;
  int64_t steps_;
  int64_t tokens_per_step_;
  double smoothed_loss_ = 0;
  bool terminal_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_PROGRESS_H_
