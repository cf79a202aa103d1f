#ifndef TRIPTYCH_CLIENT_SAMPLE_SET_H_
#define TRIPTYCH_CLIENT_SAMPLE_SET_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "client/length_distribution.h"

namespace triptych::client {

// Measurements, in bounded memory. Exact up to kKept of them; of more, percentiles are those of
// kKept that were drawn at random, each with the same chance. Count, mean and maximum are always
// those of all. Not thread-safe.
class SampleSet {
 public:
  static constexpr size_t kKept = size_t{1} << 20;

  // `count` times the same.
  void Add(double sample, int64_t count = 1);

  int64_t count() const { return count_; }
  double mean() const { return count_ > 0 ? sum_ / static_cast<double>(count_) : 0; }
  double max() const { return max_; }
  bool exact() const { return count_ <= static_cast<int64_t>(kKept); }

  // The least sample that is not less than a share `p` of them (nearest rank); 0 if there are none.
  // REQUIRES: 0 < p <= 1
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
