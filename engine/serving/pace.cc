#include "engine/serving/pace.h"

#include <algorithm>
#include <cmath>

namespace triptych {
namespace {

constexpr double kWeight = 0.25;  // of the newest in a moving average

void Average(Pace::Duration newest, Pace::Duration& average) {
  average = average.count() == 0 ? newest : average + kWeight * (newest - average);
}

}  // namespace

int64_t Pace::PromptRows(int64_t decode_rows, Duration others) const {
  const bool generates = decode_rows > 0;
  if ((!generates && others.count() == 0) || std::isinf(max_slowdown_)) return kUnlimited;
  if (generates && mixed_steps_ >= kStepsBetweenMeasurements) return 0;
  Duration spare = (max_slowdown_ - 1) * decode_;
  if (!generates) spare = others;
  if (generates && others.count() > 0) spare = std::min(spare, others);
  if (spare.count() == 0 || row_.count() == 0) return kLeastRows;
  const double rows = std::min(spare / row_, 2.0 * static_cast<double>(rows_));
  return std::max(kLeastRows, static_cast<int64_t>(rows));
}

void Pace::Record(int64_t decode_rows, int64_t prompt_rows, Duration took) {
  if (prompt_rows == 0) {
    Average(took, decode_);
    mixed_steps_ = 0;
    return;
  }
  if (decode_rows > 0) ++mixed_steps_;
  const Duration added = decode_rows > 0 ? std::max(took - decode_, took * 0.1) : took;
  Average(added / static_cast<double>(prompt_rows), row_);
  rows_ = std::max({kLeastRows, prompt_rows, rows_ / 2});
}

}  // namespace triptych
