// How far a long run of steps is, on stderr.
#ifndef TRIPTYCH_ENGINE_TOOLS_PROGRESS_H_
#define TRIPTYCH_ENGINE_TOOLS_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <string>

namespace triptych::tools {

// One line: rewritten in place on a terminal, written now and then elsewhere.
class Progress {
 public:
  // Steps from `first` to `steps`.
  Progress(int64_t first, int64_t steps, int64_t tokens_per_step);

  void Show(int64_t done, double loss);
  // A line that stays, above the one that moves.
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
