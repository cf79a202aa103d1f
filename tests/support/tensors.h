// Tensors for tests: random numbers, conversion to and from the oracle, errors.
#ifndef TRIPTYCH_TESTS_SUPPORT_TENSORS_H_
#define TRIPTYCH_TESTS_SUPPORT_TENSORS_H_

#include <ATen/core/Tensor.h>
#include <ATen/ops/stack.h>

#include <cstdint>
#include <random>
#include <vector>

#include "engine/attention/algebra.h"
#include "tests/support/oracle.h"

namespace triptych {

// Standard normal numbers, the same on every platform.
class Normal {
 public:
  explicit Normal(uint64_t seed) : generator_(seed) {}

  double Next();
  // float64, of standard deviation `deviation`.
  at::Tensor Tensor(at::IntArrayRef sizes, double deviation = 1);
  // [out, in] with a standard deviation of 1/sqrt(in), or of 1 if not `scaled`.
  at::Tensor Weight(int64_t out, int64_t in, bool scaled = true);

 private:
  std::mt19937_64 generator_;
};

// A tensor of at most two dimensions; undefined becomes empty.
oracle::Matrix ToMatrix(const at::Tensor& tensor);
at::Tensor ToTensor(const oracle::Matrix& matrix);  // [rows, cols] float64
at::Tensor ToTensor(const std::vector<int64_t>& values);

// Applies an attention of the oracle to a batch. x: [batch, L1, D1], y: [batch, L2, D2].
template <typename Attention>
at::Tensor ForBatch(const Attention& attention, const at::Tensor& x, const at::Tensor& y) {
  std::vector<at::Tensor> out;
  for (int64_t b = 0; b < x.size(0); ++b) {
    out.push_back(ToTensor(attention(ToMatrix(x[b]), ToMatrix(y[b]))));
  }
  return at::stack(out);
}

// RelativeError (engine/attention/algebra.h) of the worst row (rows: the last dimension). NaN
// counts as infinite.
double WorstRowError(const at::Tensor& a, const at::Tensor& reference);
// The largest |a - b|. NaN counts as infinite.
double LargestDifference(const at::Tensor& a, const at::Tensor& b);

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_SUPPORT_TENSORS_H_
