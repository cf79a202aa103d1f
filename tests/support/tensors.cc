#include "tests/support/tensors.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace triptych {
namespace {

double Checked(double error) {
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
}

}  // namespace

// Box and Muller 1958, from two uniform numbers of 53 random bits.
double Normal::Next() {
  const auto uniform = [&] { return (static_cast<double>(generator_() >> 11) + 0.5) * 0x1p-53; };
  const double radius = std::sqrt(-2 * std::log(uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

at::Tensor Normal::Tensor(at::IntArrayRef sizes, double deviation) {
  at::Tensor tensor = at::empty(sizes, at::kDouble);
  auto* data = tensor.data_ptr<double>();
  for (int64_t i = 0; i < tensor.numel(); ++i) data[i] = deviation * Next();
  return tensor;
}

at::Tensor Normal::Weight(int64_t out, int64_t in, bool scaled) {
  return Tensor({out, in}, scaled ? 1 / std::sqrt(static_cast<double>(in)) : 1);
}

oracle::Matrix ToMatrix(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  const at::Tensor wide = tensor.detach().to(at::kDouble).contiguous();
  oracle::Matrix matrix(wide.dim() == 2 ? wide.size(0) : 1, wide.size(-1));
  std::copy_n(wide.data_ptr<double>(), wide.numel(), matrix.data.begin());
  return matrix;
}

at::Tensor ToTensor(const oracle::Matrix& matrix) {
  at::Tensor tensor = at::empty({matrix.rows, matrix.cols}, at::kDouble);
  std::copy(matrix.data.begin(), matrix.data.end(), tensor.data_ptr<double>());
  return tensor;
}

at::Tensor ToTensor(const std::vector<int64_t>& values) {
  return at::tensor(at::ArrayRef<int64_t>(values), at::kLong);
}

double WorstRowError(const at::Tensor& a, const at::Tensor& reference) {
  const at::Tensor wide = reference.to(at::kDouble);
  const at::Tensor difference = a.to(at::kDouble) - wide;
  return Checked(
      (difference.square().mean(-1).sqrt() / wide.square().mean(-1).sqrt()).max().item<double>());
}

double LargestDifference(const at::Tensor& a, const at::Tensor& b) {
  return Checked((a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>());
}

}  // namespace triptych
