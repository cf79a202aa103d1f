#include "engine/attention/grouped_attention.h"

#include <cmath>
#include <utility>

#include "engine/attention/dense.h"
#include "engine/kernels/threads.h"

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
  return weights_.o(AttendDense(
      Rotate(rotary_, q, at::arange(x.size(1), x.options().dtype(at::kLong))),
      Rotate(rotary_, k, at::arange(y.size(1), y.options().dtype(at::kLong))), v, scale_, causal));
}

void GroupedAttention::PrepareToServe(bool /*vanilla*/) {
  if (!ServesOnKernels(weights_.q.weight)) return;
  packed_qkv_ = Pack({weights_.q, weights_.k, weights_.v});
  packed_o_ = Pack({weights_.o});
}

void GroupedAttention::DropDense() {
  if (ServesOnKernels(weights_.q.weight)) weights_ = {};
}

PagedRowLayout GroupedAttention::RowLayout() const {
  return {.heads = heads_,
          .groups = groups_,
          .key_width = d_qk_,
          .value_offset = groups_ * d_qk_,
          .value_width = d_v_};
}

void GroupedAttention::Paged(const float* x, const PagedStep& step, const at::Tensor& cache,
                             Workspace& workspace, float* y) const {
  const Workspace::Scope scope(workspace);
  const int64_t tokens = step.tokens(), width = packed_qkv_.shape().outputs;
  const int64_t q_width = heads_ * d_qk_;
  float* const qkv = workspace.Floats(tokens * width);  // [tokens, H * d_qk + G * d_qk + G * d_v]
  packed_qkv_.Apply(x, tokens, qkv, ComputeContext());
  if (rotary_.defined()) {  // keys follow queries
    rotary_.Apply(
        {.heads = heads_ + groups_, .dim = d_qk_, .head_stride = d_qk_, .row_stride = width},
        step.positions, qkv);
  }
  float* const out = workspace.Floats(tokens * heads_ * d_v_);  // [tokens, H, d_v]
  const PagedRowLayout layout = RowLayout();
  WriteRows(qkv + q_width, width, step.sequences, cache);
  Attend(qkv, width, cache, layout, static_cast<float>(scale_), step.sequences, out, heads_ * d_v_);
  packed_o_.Apply(out, tokens, y, ComputeContext());
}

at::Tensor GroupedAttention::Paged(const at::Tensor& x, const TensorStep& step,
                                   const at::Tensor& cache) const {
  const at::Tensor q = weights_.q(x).unflatten(-1, {heads_, d_qk_});   // [tokens, H, d_qk]
  const at::Tensor k = weights_.k(x).unflatten(-1, {groups_, d_qk_});  // [tokens, G, d_qk]
  const at::Tensor rows =
      at::cat({Rotate(rotary_, k, step.positions).flatten(1), weights_.v(x)}, 1);
  return weights_.o(
      WriteAndAttend(Rotate(rotary_, q, step.positions), rows, RowLayout(), scale_, step, cache));
}

}  // namespace triptych
