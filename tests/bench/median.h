// Median of measurements.
#ifndef TRIPTYCH_TESTS_BENCH_MEDIAN_H_
#define TRIPTYCH_TESTS_BENCH_MEDIAN_H_

#include <algorithm>
#include <vector>

namespace triptych {

// REQUIRES: `values` is not empty.
inline double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_BENCH_MEDIAN_H_
