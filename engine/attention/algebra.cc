#include "engine/attention/algebra.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>
#include <vector>

namespace triptych {
namespace {

// The Frobenius norm, or 1 for a zero matrix: always a valid divisor.
double NormOrOne(const at::Tensor& matrix) {
  const auto norm = matrix.norm().item<double>();
  return norm > 0 ? norm : 1;
}

// Q L^(1/2), where C = Q L Q^T: A times it has the U and S of A C^(1/2). Eigenvalues are clamped to
// 1e-10 of the largest: directions that never occur in the inputs come last, and full rank stays
// exact.
//   covariance: C, [D, D] -> float64 [D, D]
at::Tensor InputRoot(const at::Tensor& covariance) {
  const auto [values, q] = at::linalg_eigh(covariance.to(at::kDouble));
  const double largest = values.max().item<double>();
  const double least = largest > 0 ? 1e-10 * largest : 1;
  return q * values.clamp_min(least).sqrt();
}

}  // namespace

at::Tensor RepeatHeads(const at::Tensor& rows, int64_t heads, int64_t d) {
  const int64_t groups = rows.size(0) / d;
  // Head j * G + g is group g: the list of groups, heads / G times.
  std::vector<int64_t> repeats(rows.dim(), 1);
  repeats[0] = heads / groups;
  return rows.repeat(repeats);
}

at::Tensor PoolHeads(const at::Tensor& rows, int64_t groups, int64_t d) {
  return rows.unflatten(0, {-1, groups * d}).mean(0);
}

CommonBasis::CommonBasis(const at::Tensor& rows, int64_t groups, int64_t d,
                         const at::Tensor& covariance) {
  const int64_t shared = rows.size(0) / (groups * d), width = rows.size(1);  // m, D
  if (shared == 1) {
    heads_ = rows.to(at::kDouble);
    basis_ = at::eye(d, at::kDouble).expand({groups, d, d});
    return;
  }
  // Head h = j * G + g becomes rows j * d to (j + 1) * d - 1 of group g's stack.
  const at::Tensor stacks = rows.to(at::kDouble)
                                .view({shared, groups, d, width})
                                .transpose(0, 1)
                                .reshape({groups, shared * d, width});
  const auto svd =
      at::linalg_svd(covariance.defined() ? at::matmul(stacks, InputRoot(covariance)) : stacks,
                     /*full_matrices=*/false);
  const int64_t rank = std::min(d, width);
  const at::Tensor basis =
      at::constant_pad_nd(std::get<0>(svd).narrow(2, 0, rank), {0, d - rank});  // [G, m * d, d]
  const at::Tensor squares = std::get<1>(svd).square();
  const auto all = squares.sum().item<double>();
  if (all > 0) energy_kept_ = squares.narrow(1, 0, rank).sum().item<double>() / all;
  heads_ = at::matmul(basis.transpose(1, 2), stacks).flatten(0, 1);
  basis_ = basis.view({groups, shared, d, d}).transpose(0, 1).reshape({shared * groups, d, d});
}

at::Tensor CommonBasis::Turn(const at::Tensor& rows) const {
  const int64_t d = basis_.size(1), heads = rows.size(0) / d;
  const at::Tensor each = rows.to(at::kDouble).reshape({heads, d, -1});
  const at::Tensor turned =
      at::bmm(basis_.repeat({heads / basis_.size(0), 1, 1}).transpose(1, 2), each);
  return turned.reshape(rows.sizes());
}

at::Tensor CommonBasis::Expand(const at::Tensor& heads) const {
  const int64_t d = basis_.size(1);
  const at::Tensor each = RepeatHeads(heads.to(at::kDouble), basis_.size(0), d);
  return at::bmm(basis_, each.view({basis_.size(0), d, -1})).flatten(0, 1);
}

at::Tensor Likeness(const at::Tensor& rows, int64_t d, const at::Tensor& covariance) {
  const at::Tensor all = rows.to(at::kDouble);
  const at::Tensor a = covariance.defined() ? at::mm(all, InputRoot(covariance)) : all;
  const double norm = NormOrOne(a);
  return at::mm(a, a.t())
      .square()
      .view({rows.size(0) / d, d, rows.size(0) / d, d})
      .sum(at::IntArrayRef{1, 3})
      .div(norm * norm * norm * norm);
}

std::vector<int64_t> LikeHeads(const at::Tensor& likeness, int64_t groups) {
  const int64_t heads = likeness.size(0);
  const at::Tensor dense = likeness.to(at::kDouble).contiguous();
  const auto like = dense.accessor<double, 2>();
  std::vector<int64_t> order(heads);
  std::iota(order.begin(), order.end(), 0);
  // Likeness of the head in slot `from` to the heads in the group of slot `place`, except those in
  // slots `place` and `without`.
  const auto shared = [&](int64_t from, int64_t place, int64_t without) {
    double sum = 0;
    for (int64_t i = place % groups; i < heads; i += groups) {
      if (i != place && i != without) sum += like[order[from]][order[i]];
    }
    return sum;
  };
  const double least = 1e-9 * dense.abs().sum().item<double>();  // smaller gains are rounding
  for (bool better = true; better;) {
    better = false;
    for (int64_t i = 0; i < heads; ++i) {
      for (int64_t j = i + 1; j < heads; ++j) {
        if (i % groups == j % groups) continue;
        const double gain = shared(i, j, i) + shared(j, i, j) - shared(i, i, i) - shared(j, j, j);
        if (gain <= least) continue;
        std::swap(order[i], order[j]);
        better = true;
      }
    }
  }
  return order;
}

KeyValueSvd::KeyValueSvd(const at::Tensor& w_k, const at::Tensor& w_v, const at::Tensor& covariance,
                         const at::Tensor& whole_keys)
    : key_rows_(w_k.size(0)) {
  const at::Tensor keys = w_k.to(at::kDouble), values = w_v.to(at::kDouble);
  at::Tensor weighted;  // [rows, D]
  if (covariance.defined()) {
    const at::Tensor root = InputRoot(covariance);
    const at::Tensor weighted_keys = at::mm(keys, root), weighted_values = at::mm(values, root);
    key_scale_ =
        NormOrOne(whole_keys.defined() ? at::mm(whole_keys.to(at::kDouble), root) : weighted_keys);
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
  // The scale may be split between the two factors in any way. This split keeps W_DKV at the
  // magnitude of the weights, with or without a covariance, which is the scale that training
  // expects.
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
