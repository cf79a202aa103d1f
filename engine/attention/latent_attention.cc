#include "engine/attention/latent_attention.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/attention/dense.h"
#include "engine/attention/rms_norm.h"
#include "engine/kernels/norm.h"
#include "engine/kernels/threads.h"

namespace triptych {
namespace {

// The latents c and the rotated shared keys k_R of what kv_a projects to: [..., r + d_R].
at::Tensor LatentRows(const LatentShape& shape, const at::Tensor& projected,
                      const at::Tensor& latent_norm, const Rotary& rotary,
                      const at::Tensor& positions) {
  if (!latent_norm.defined() && shape.d_rope == 0) return projected;
  at::Tensor latent = projected.narrow(-1, 0, shape.rank);
  if (latent_norm.defined()) latent = RmsNorm(latent, latent_norm, shape.norm_eps);
  if (shape.d_rope == 0) return latent;
  const at::Tensor key = projected.narrow(-1, shape.rank, shape.d_rope).unsqueeze(-2);
  return at::cat({latent, rotary.Apply(key, positions).squeeze(-2)}, -1);
}

// q: [..., H, width + d_R]; rotates the last d_R elements of each head.
at::Tensor RotateTail(const LatentShape& shape, const Rotary& rotary, const at::Tensor& q,
                      int64_t width, const at::Tensor& positions) {
  if (shape.d_rope == 0) return q;
  return at::cat(
      {q.narrow(-1, 0, width), rotary.Apply(q.narrow(-1, width, shape.d_rope), positions)}, -1);
}

// x: [..., H, in], weight: [H, in, out] -> [..., H, out], each head by its own matrix.
at::Tensor PerHead(const at::Tensor& x, const at::Tensor& weight) {
  const at::Tensor by_head = x.flatten(0, -3).transpose(0, 1);  // [H, tokens, in]
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.size(2);
  return at::bmm(by_head, weight.to(x.scalar_type())).transpose(0, 1).reshape(sizes);
}

}  // namespace

ReducedLatentAttention::ReducedLatentAttention(const LatentShape& shape,
                                               const LatentWeights& weights, Rotary rotary,
                                               ReducedForm form)
    : shape_(shape),
      form_(form),
      scale_(1.0 / std::sqrt(static_cast<double>(shape.rank + shape.d_rope))),
      rotary_(std::move(rotary)),
      q_width_(shape.heads *
               ((form == ReducedForm::kFactored ? shape.d_qk : shape.rank) + shape.d_rope)),
      latent_norm_(weights.latent_norm),
      kv_a_(weights.kv_a) {
  const at::NoGradGuard no_grad;
  const at::ScalarType dtype = weights.q.weight.scalar_type();
  const int64_t heads = shape.heads, d_qk = shape.d_qk, d_v = shape.d_v, rank = shape.rank;
  const double factor = std::sqrt(static_cast<double>(rank + shape.d_rope) /
                                  static_cast<double>(d_qk + shape.d_rope));

  // Products of weights are made in float64 and rounded once.
  const at::Tensor kv_b = weights.kv_b.to(at::kDouble).view({heads, d_qk + d_v, rank});
  const at::Tensor uk = kv_b.narrow(1, 0, d_qk);    // [H, d_qk, r]
  const at::Tensor uv = kv_b.narrow(1, d_qk, d_v);  // [H, d_v, r]
  const at::Tensor q = weights.q.weight.to(at::kDouble).view({heads, d_qk + shape.d_rope, -1}) *
                       factor;  // [H, d_qk + d_R, D1]
  at::Tensor q_bias;
  if (weights.q.bias.defined()) {
    q_bias = weights.q.bias.to(at::kDouble).view({heads, -1, 1}) * factor;  // [H, d_qk + d_R, 1]
  }

  o_.bias = weights.o.bias;
  if (form == ReducedForm::kFactored) {
    q_.weight = q.flatten(0, 1).to(dtype);
    if (q_bias.defined()) q_.bias = q_bias.flatten().to(dtype);
    uk_ = uk.to(dtype).contiguous();
    uv_t_ = uv.transpose(1, 2).to(dtype).contiguous();
    o_.weight = weights.o.weight;
    return;
  }
  // Per head: W_UK[h]^T over the content rows, the rotary rows as they are.
  const auto absorb = [&](const at::Tensor& rows) {
    return at::cat(
        {at::bmm(uk.transpose(1, 2), rows.narrow(1, 0, d_qk)), rows.narrow(1, d_qk, shape.d_rope)},
        1);
  };
  q_.weight = absorb(q).flatten(0, 1).to(dtype);
  if (q_bias.defined()) q_.bias = absorb(q_bias).flatten().to(dtype);
  const at::Tensor o =
      weights.o.weight.to(at::kDouble).view({-1, heads, d_v}).permute({1, 0, 2});   // [H, D1, d_v]
  o_.weight = at::bmm(o, uv).permute({1, 0, 2}).flatten(1).to(dtype).contiguous();  // [D1, H * r]
}

at::Tensor ReducedLatentAttention::Queries(const at::Tensor& x, const at::Tensor& positions) const {
  const at::Tensor q = q_(x).unflatten(-1, {shape_.heads, -1});  // [..., H, width + d_R]
  if (form_ == ReducedForm::kPremultiplied) {
    return RotateTail(shape_, rotary_, q, shape_.rank, positions);
  }
  const at::Tensor content = PerHead(q.narrow(-1, 0, shape_.d_qk), uk_);  // [..., H, r]
  if (shape_.d_rope == 0) return content;
  return at::cat({content, rotary_.Apply(q.narrow(-1, shape_.d_qk, shape_.d_rope), positions)}, -1);
}

at::Tensor ReducedLatentAttention::Rows(const at::Tensor& y, const at::Tensor& positions) const {
  return LatentRows(shape_, kv_a_(y), latent_norm_, rotary_, positions);
}

at::Tensor ReducedLatentAttention::Output(const at::Tensor& latents) const {
  if (form_ == ReducedForm::kPremultiplied) return o_(latents);
  return o_(PerHead(latents.unflatten(-1, {shape_.heads, shape_.rank}), uv_t_).flatten(-2));
}

at::Tensor ReducedLatentAttention::Dense(const at::Tensor& x, const at::Tensor& y,
                                         bool causal) const {
  const at::Tensor q =
      Queries(x, at::arange(x.size(1), x.options().dtype(at::kLong)));  // [batch, L1, H, r + d_R]
  const at::Tensor key = Rows(y, at::arange(y.size(1), y.options().dtype(at::kLong)))
                             .unsqueeze(2);  // [batch, L2, 1, r + d_R]
  return Output(AttendDense(q, key, key.narrow(-1, 0, shape_.rank), scale_, causal));
}

void ReducedLatentAttention::Pack() {
  packed_in_ = triptych::Pack({q_, kv_a_});
  packed_o_ = triptych::Pack({o_});
  if (form_ == ReducedForm::kFactored) {
    packed_uk_ = PackHeads(uk_.transpose(1, 2));
    packed_uv_ = PackHeads(uv_t_.transpose(1, 2));
  }
  packed_latent_norm_ = ToFloats(latent_norm_);
  q_ = kv_a_ = o_ = Linear();
  uk_ = uv_t_ = latent_norm_ = at::Tensor();
}

ReducedLatentAttention::QueriesAndRows ReducedLatentAttention::PackedInputs(
    const float* x, const std::vector<int64_t>& positions, Workspace& workspace) const {
  const auto tokens = static_cast<int64_t>(positions.size());
  const int64_t heads = shape_.heads, rank = shape_.rank, d_rope = shape_.d_rope;
  const int64_t stride = packed_in_.shape().outputs;  // H * (width + d_R) + r + d_R
  float* const projected = workspace.Floats(tokens * stride);
  packed_in_.Apply(x, tokens, projected, ComputePool());

  float* const rows = projected + q_width_;
  if (!packed_latent_norm_.empty()) {
    RmsNorm(rows, stride, tokens, rank, packed_latent_norm_.data(),
            static_cast<float>(shape_.norm_eps), rows, stride, ComputePool());
  }
  const int64_t head = q_width_ / heads;  // width + d_R
  if (d_rope > 0) {
    rotary_.Apply({.heads = 1, .dim = d_rope, .head_stride = 0, .row_stride = stride}, positions,
                  rows + rank);
    rotary_.Apply({.heads = heads, .dim = d_rope, .head_stride = head, .row_stride = stride},
                  positions, projected + head - d_rope);
  }
  if (form_ == ReducedForm::kPremultiplied) return {projected, stride, rows, stride};

  const int64_t reduced_head = rank + d_rope, reduced_stride = heads * reduced_head;
  float* const queries = workspace.Floats(tokens * reduced_stride);  // [tokens, H, r + d_R]
  packed_uk_.Apply(projected, {stride, head}, tokens, queries, {reduced_stride, reduced_head},
                   ComputePool());
  for (int64_t t = 0; t < tokens && d_rope > 0; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      std::copy_n(projected + t * stride + h * head + shape_.d_qk, d_rope,
                  queries + t * reduced_stride + h * reduced_head + rank);
    }
  }
  return {queries, reduced_stride, rows, stride};
}

void ReducedLatentAttention::PackedOutput(const float* latents, int64_t tokens,
                                          Workspace& workspace, float* y) const {
  const Workspace::Scope scope(workspace);
  if (form_ == ReducedForm::kFactored) {
    float* const values = workspace.Floats(tokens * shape_.heads * shape_.d_v);  // [tokens, H, d_v]
    packed_uv_.Apply(latents, tokens, values, ComputePool());
    latents = values;
  }
  packed_o_.Apply(latents, tokens, y, ComputePool());
}

LatentAttention::LatentAttention(const LatentShape& shape, LatentWeights weights, Rotary rotary)
    : shape_(shape), weights_(std::move(weights)), rotary_(std::move(rotary)) {}

at::Tensor LatentAttention::Dense(const at::Tensor& x, const at::Tensor& y, bool causal) const {
  const int64_t heads = shape_.heads, d_qk = shape_.d_qk, d_v = shape_.d_v, d_rope = shape_.d_rope;
  const at::Tensor q = RotateTail(
      shape_, rotary_, weights_.q(x).unflatten(-1, {heads, -1}), d_qk,
      at::arange(x.size(1), x.options().dtype(at::kLong)));  // [batch, L1, H, d_qk + d_R]
  const at::Tensor rows =
      LatentRows(shape_, weights_.kv_a(y), weights_.latent_norm, rotary_,
                 at::arange(y.size(1), y.options().dtype(at::kLong)));  // [batch, L2, r + d_R]
  const at::Tensor latent = rows.narrow(-1, 0, shape_.rank);
  const at::Tensor kv = Linear{weights_.kv_b, {}}(latent).unflatten(-1, {heads, d_qk + d_v});
  at::Tensor k = kv.narrow(-1, 0, d_qk);  // [batch, L2, H, d_qk]
  if (d_rope > 0) {
    const at::Tensor shared = rows.narrow(-1, shape_.rank, d_rope).unsqueeze(2);
    k = at::cat({k, shared.expand({-1, -1, heads, -1})}, -1);
  }
  const double scale = 1.0 / std::sqrt(static_cast<double>(d_qk + d_rope));
  return weights_.o(AttendDense(q, k, kv.narrow(-1, d_qk, d_v), scale, causal));
}

ReducedLatentAttention LatentAttention::Reduce(ReducedForm form) const {
  return ReducedLatentAttention(shape_, weights_, rotary_, form);
}

void LatentAttention::PrepareToServe() {
  const int64_t width = weights_.q.weight.size(1);  // D
  const int64_t heads = shape_.heads, rank = shape_.rank;
  const int64_t premultiplied = 2 * heads * rank * width;
  const int64_t factored = heads * (shape_.d_qk + shape_.d_v) * (width + rank);
  reduced_ = std::make_unique<ReducedLatentAttention>(
      Reduce(premultiplied <= factored ? ReducedForm::kPremultiplied : ReducedForm::kFactored));
  if (ServesOnKernels(weights_.q.weight)) reduced_->Pack();
}

PagedRowLayout LatentAttention::RowLayout() const {
  return {.heads = shape_.heads,
          .groups = 1,
          .key_width = shape_.rank + shape_.d_rope,
          .value_offset = 0,
          .value_width = shape_.rank,
          .row_width = shape_.rank + shape_.d_rope};
}

void LatentAttention::Paged(const float* x, const PagedStep& step, const at::Tensor& cache,
                            Workspace& workspace, float* y) const {
  const Workspace::Scope scope(workspace);
  const ReducedLatentAttention::QueriesAndRows in =
      reduced_->PackedInputs(x, step.positions, workspace);
  float* const latents = workspace.Floats(step.tokens() * shape_.heads * shape_.rank);
  WriteAndAttend(in.queries, in.queries_stride, in.rows, in.rows_stride, RowLayout(),
                 reduced_->scale(), step, cache, latents);
  reduced_->PackedOutput(latents, step.tokens(), workspace, y);
}

at::Tensor LatentAttention::Paged(const at::Tensor& x, const TensorStep& step,
                                  const at::Tensor& cache) const {
  return reduced_->Output(WriteAndAttend(reduced_->Queries(x, step.positions),
                                         reduced_->Rows(x, step.positions), RowLayout(),
                                         reduced_->scale(), step, cache));
}

}  // namespace triptych
