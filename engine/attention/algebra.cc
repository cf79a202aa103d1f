#include "engine/attention/algebra.h"

#include <cmath>
#include <tuple>
#include <vector>

namespace triptych {
namespace {

// What to divide by: the Frobenius norm, or 1 for a matrix of zeros.
double NormOrOne(const at::Tensor& matrix) {
  const auto norm = matrix.norm().item<double>();
  return norm > 0 ? norm : 1;
}

}  // namespace

at::Tensor RepeatHeads(const at::Tensor& rows, int64_t heads, int64_t d) {
  const int64_t groups = rows.size(0) / d;
  // Head j * G + g: the whole list of groups, heads / G times.
  std::vector<int64_t> repeats(rows.dim(), 1);
  repeats[0] = heads / groups;
  return rows.repeat(repeats);
}

at::Tensor PoolHeads(const at::Tensor& rows, int64_t groups, int64_t d) {
  return rows.unflatten(0, {-1, groups * d}).mean(0);
}

KeyValueSvd::KeyValueSvd(const at::Tensor& w_k, const at::Tensor& w_v, const at::Tensor& covariance)
    : key_rows_(w_k.size(0)) {
  const at::Tensor keys = w_k.to(at::kDouble), values = w_v.to(at::kDouble);
  at::Tensor weighted;  // [rows, D]
  if (covariance.defined()) {
    // With C = Q L Q^T, A Q L^(1/2) has the U and S of A C^(1/2). Directions that the inputs never
    // take get a hair's weight: they come last, but full rank stays exact.
    const auto [values_of_c, q] = at::linalg_eigh(covariance.to(at::kDouble));
    const double largest = values_of_c.max().item<double>();
    const double least = largest > 0 ? 1e-10 * largest : 1;
    const at::Tensor root = q * values_of_c.clamp_min(least).sqrt();  // [D, D]
    const at::Tensor weighted_keys = at::mm(keys, root), weighted_values = at::mm(values, root);
    key_scale_ = NormOrOne(weighted_keys);
    value_scale_ = NormOrOne(weighted_values);
    weighted = at::cat({weighted_keys / key_scale_, weighted_values / value_scale_});
  }
  stacked_ = at::cat({keys / key_scale_, values / value_scale_});
  const auto svd = at::linalg_svd(weighted.defined() ? weighted : stacked_,
                                  /*full_matrices=*/false);
  basis_ = std::get<0>(svd);
  const at::Tensor energies = std::get<1>(svd).square().cumsum(0);
  energy_ = energies[-1].item<double>() > 0 ? energies / energies[-1] : at::ones_like(energies);
}

LatentFactors KeyValueSvd::Factors(int64_t rank) const {
  const at::Tensor basis = basis_.narrow(1, 0, rank);  // [rows, r]
  const int64_t value_rows = basis.size(0) - key_rows_;
  // Any number may move from one factor to the other. Like this the first is of the size of the
  // weights, with or without a covariance, and training finds both at the scale that it expects.
  const double size = std::sqrt(key_scale_ * value_scale_);
  return {.down = at::mm(basis.t(), stacked_) * size,
          .up_k = basis.narrow(0, 0, key_rows_) * (key_scale_ / size),
          .up_v = basis.narrow(0, key_rows_, value_rows) * (value_scale_ / size)};
}

double RelativeError(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor reference = b.to(at::kDouble);
  return (a.to(at::kDouble) - reference).norm().item<double>() / NormOrOne(reference);
}

}  // namespace triptych
