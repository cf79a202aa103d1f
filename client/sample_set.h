// Statistics of measurements in bounded memory.
#ifndef TRIPTYCH_CLIENT_SAMPLE_SET_H_
#define TRIPTYCH_CLIENT_SAMPLE_SET_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "client/length_distribution.h"

namespace triptych::client {

// Measurements in bounded memory. Up to kKept samples, percentiles are exact. Beyond, they are
// those of kKept samples drawn at random with equal probability. Count, mean and maximum are always
// exact. Not thread-safe.
class SampleSet {
 public:
  static constexpr size_t kKept = size_t{1} << 20;

  // Adds `sample` `count` times.
  void Add(double sample, int64_t count = 1);

  int64_t count() const { return count_; }
  double mean() const { return count_ > 0 ? sum_ / static_cast<double>(count_) : 0; }
  double max() const { return max_; }
  bool exact() const { return count_ <= static_cast<int64_t>(kKept); }

  // The least sample that is not less than a share `p` of the samples (nearest rank); 0 without
  // samples. REQUIRES: 0 < p <= 1.
  double Percentile(double p) const;

 private:
  int64_t count_ = 0;
  double sum_ = 0;
  double max_ = 0;
  Random random_;
  mutable bool sorted_ = true;
  mutable std::vector<double> kept_;
};

}  // namespace triptych::client

#endif  // TRIPTYCH_CLIENT_SAMPLE_SET_H_
