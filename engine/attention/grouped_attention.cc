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

void GroupedAttention::PrepareToServe() {
  packed_qkv_ = Pack({weights_.q, weights_.k, weights_.v});
  packed_o_ = Pack({weights_.o});
}

at::Tensor GroupedAttention::Paged(const at::Tensor& x, const PagedStep& step,
                                   at::Tensor& cache) const {
  const int64_t q_width = heads_ * d_qk_, k_width = groups_ * d_qk_, v_width = groups_ * d_v_;
  const at::Tensor qkv = Apply(packed_qkv_, x);  // [tokens, H * d_qk + G * d_qk + G * d_v]
  const at::Tensor q = qkv.narrow(1, 0, q_width).unflatten(1, {heads_, d_qk_});
  at::Tensor rows = qkv.narrow(1, q_width, k_width + v_width);
  if (rotary_.defined()) {
    const at::Tensor k = rows.narrow(1, 0, k_width).unflatten(1, {groups_, d_qk_});
    rows =
        at::cat({rotary_.Apply(k, step.positions).flatten(1), rows.narrow(1, k_width, v_width)}, 1);
  }
  const PagedRowLayout layout{.heads = heads_,
                              .groups = groups_,
                              .key_width = d_qk_,
                              .value_offset = groups_ * d_qk_,
                              .value_width = d_v_,
                              .row_width = k_width + v_width};
  return Apply(packed_o_, WriteAndAttend(Rotate(rotary_, q, step.positions), rows, layout, scale_,
                                         step, cache));
}

}  // namespace triptych
