#include "engine/serving/prefill_throttle.h"

#include <algorithm>
#include <cmath>

namespace triptych::serving {

PrefillThrottle::Duration PrefillThrottle::Longest() const {
  return std::max(max_slowdown_ * decode_.value(), kUnfelt);
}

int64_t PrefillThrottle::PromptRows(int64_t decode_rows, Duration others, int64_t least) const {
  const bool generates = decode_rows > 0;
  if ((!generates && others.count() == 0) || std::isinf(max_slowdown_)) return kUnlimited;
  if (generates && (debt_.count() > 0 || mixed_steps_ >= kStepsBetweenMeasurements)) return 0;
  Duration spare = Longest() - decode_.value();
  if (others.count() > 0) {
    others = std::max(others, kUnfelt);
    spare = generates ? std::min(spare, others) : others;
  }
  const Duration row = row_.value();
  if (row.count() == 0) return std::max(least, rows_);
  const double rows = std::min(spare / row, 2.0 * static_cast<double>(rows_));
  return std::max(least, static_cast<int64_t>(rows));
}

void PrefillThrottle::Record(int64_t decode_rows, int64_t prompt_rows, Duration took) {
  if (prompt_rows == 0) {
    decode_.Add(took);
    debt_ = std::max(debt_ - (Longest() - decode_.value()), Duration(0));
    mixed_steps_ = 0;
    return;
  }
  const auto rows = static_cast<double>(prompt_rows);
  Duration added = took;
  if (decode_rows > 0) added = std::max(took - decode_.value(), took * 0.1);
  row_.Add(added / rows);
  if (decode_rows > 0) {
    ++mixed_steps_;
    // A step delayed by other work of the machine adds no more than its expected time.
    const Duration owed = std::min(took, decode_.value() + rows * row_.value());
    debt_ = std::max(debt_ + owed - Longest(), Duration(0));
  } else {
    debt_ = Duration(0);
  }
  rows_ = std::max({int64_t{1}, prompt_rows, rows_ / 2});
}

}  // namespace triptych::serving
