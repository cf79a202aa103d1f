#include "engine/attention/grouped_attention.h"

#include <cmath>
#include <utility>

#include "engine/attention/dense.h"

namespace triptych {
namespace {

at::Tensor Rotate(const Rotary& rotary, const at::Tensor& x, const at::Tensor& positions) {
  return rotary.defined() ? rotary.Apply(x, positions) : x;
}

}  // namespace

GroupedAttention::GroupedAttention(int64_t heads, int64_t groups, Weights weights, Rotary rotary)
    : heads_(heads),
      groups_(groups),
      weights_(std::move(weights)),
      rotary_(std::move(rotary)),
      d_qk_(weights_.q.weight.size(0) / heads),
      d_v_(weights_.v.weight.size(0) / groups),
      scale_(1.0 / std::sqrt(static_cast<double>(d_qk_))) {}

at::Tensor GroupedAttention::Dense(const at::Tensor& x, const at::Tensor& y, bool causal) const {
  const at::Tensor q = weights_.q(x).unflatten(-1, {heads_, d_qk_});   // [batch, L1, H, d_qk]
  const at::Tensor k = weights_.k(y).unflatten(-1, {groups_, d_qk_});  // [batch, L2, G, d_qk]
  const at::Tensor v = weights_.v(y).unflatten(-1, {groups_, d_v_});   // [batch, L2, G, d_v]
  return weights_.o(AttendDense(Rotate(rotary_, q, at::arange(x.size(1), at::kLong)),
                                Rotate(rotary_, k, at::arange(y.size(1), at::kLong)), v, scale_,
                                causal));
}

at::Tensor GroupedAttention::Paged(const at::Tensor& x, const PagedStep& step,
                                   at::Tensor& cache) const {
  const at::Tensor q = weights_.q(x).unflatten(-1, {heads_, d_qk_});   // [tokens, H, d_qk]
  const at::Tensor k = weights_.k(x).unflatten(-1, {groups_, d_qk_});  // [tokens, G, d_qk]
  const at::Tensor v = weights_.v(x);                                  // [tokens, G * d_v]
  const at::Tensor rows = at::cat({Rotate(rotary_, k, step.positions).flatten(1), v}, 1);
  const PagedRowLayout layout{.heads = heads_,
                              .groups = groups_,
                              .key_width = d_qk_,
                              .value_offset = groups_ * d_qk_,
                              .value_width = d_v_,
                              .row_width = rows.size(1)};
  return weights_.o(
      WriteAndAttend(Rotate(rotary_, q, step.positions), rows, layout, scale_, step, cache));
}

}  // namespace triptych
