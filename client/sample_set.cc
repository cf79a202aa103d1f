#include "client/sample_set.h"

#include <algorithm>
#include <cmath>

namespace triptych::client {

void SampleSet::Add(double sample, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    max_ = count_ == 0 ? sample : std::max(max_, sample);
    ++count_;
    sum_ += sample;
    if (kept_.size() < kKept) {
      kept_.push_back(sample);
    } else {
      const int64_t place = DrawUniform(0, count_ - 1, random_);  // Vitter's algorithm R
      if (place < static_cast<int64_t>(kKept)) kept_[place] = sample;
    }
  }
  sorted_ = false;
}

double SampleSet::Percentile(double p) const {
  if (kept_.empty()) return 0;
  if (!sorted_) std::sort(kept_.begin(), kept_.end());
  sorted_ = true;
  // 0.999 * 1000 is a little more than 999.
  const double rank = std::ceil(p * static_cast<double>(kept_.size()) - 1e-6);
  const auto index = static_cast<size_t>(std::max(rank, 1.0)) - 1;
  return kept_[std::min(index, kept_.size() - 1)];
}

}  // namespace triptych::client
