#include "engine/tools/progress.h"

#include <unistd.h>

#include <cstdio>

namespace triptych::tools {

Progress::Progress(int64_t first, int64_t steps, int64_t tokens_per_step)
    : first_(first),
      steps_(steps),
      tokens_per_step_(tokens_per_step),
      terminal_(isatty(STDERR_FILENO) != 0) {}

void Progress::Show(int64_t done, double loss) {
  smoothed_loss_ = done == first_ + 1 ? loss : 0.95 * smoothed_loss_ + 0.05 * loss;
  if (!terminal_ && done % 50 != 0 && done != steps_) return;
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  const double rate = static_cast<double>(done - first_) / seconds;
  constexpr int kWidth = 24;
  const auto filled = static_cast<int>(done * kWidth / steps_);
  const auto left = static_cast<int64_t>(static_cast<double>(steps_ - done) / rate);
  std::fprintf(stderr, "%s[%s%s] %lld/%lld  loss %.4f  %.0f tokens/s  %lld:%02lld left%s",
               terminal_ ? "\r" : "", std::string(filled, '#').c_str(),
               std::string(kWidth - filled, '.').c_str(), static_cast<long long>(done),
               static_cast<long long>(steps_), smoothed_loss_,
               rate * static_cast<double>(tokens_per_step_), static_cast<long long>(left / 60),
               static_cast<long long>(left % 60), terminal_ && done != steps_ ? "  " : "\n");
}

void Progress::Say(const std::string& line) {
  std::fprintf(stderr, "%s%s\n", terminal_ ? "\r\033[K" : "", line.c_str());
}

}  // namespace triptych::tools
