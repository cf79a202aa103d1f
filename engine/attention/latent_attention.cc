#include "engine/attention/latent_attention.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/attention/dense.h"
#include "engine/attention/rms_norm.h"

namespace triptych {
namespace {

// Cache rows from the output of kv_a: the latent c (normed if latent_norm is defined), then the
// rotated shared key k_R: [..., r + d_R].
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

// Input of the query projection: [..., query_rank or D1].
at::Tensor QuerySource(const LatentShape& shape, const Linear& q_a, const at::Tensor& q_norm,
                       const at::Tensor& x) {
  return q_a.defined() ? RmsNorm(q_a(x), q_norm, shape.norm_eps) : x;
}

// q: [..., H, width + d_R]; rotates the last d_R elements of each head.
at::Tensor RotateTail(const LatentShape& shape, const Rotary& rotary, const at::Tensor& q,
                      int64_t width, const at::Tensor& positions) {
  if (shape.d_rope == 0) return q;
  return at::cat(
      {q.narrow(-1, 0, width), rotary.Apply(q.narrow(-1, width, shape.d_rope), positions)}, -1);
}

// 1 / sqrt(mean(x^2) + eps) over the last dimension, which stays with size 1; in float32 or wider.
at::Tensor InverseNorm(const at::Tensor& x, double eps) {
  const at::Tensor wide = x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
  return wide.square().mean(-1, /*keepdim=*/true).add(eps).rsqrt().to(x.scalar_type());
}

// The inverse norms of the keys of y: [..., G].
at::Tensor InverseKeyNorms(const LatentShape& shape, const Linear& k, const at::Tensor& y) {
  return InverseNorm(k(y).unflatten(-1, {shape.normed_keys, shape.d_qk}), shape.norm_eps)
      .squeeze(-1);
}

// q: [..., H, d_qk + d_R], divided by the norm of each head's first d_qk elements.
at::Tensor NormHeads(const LatentShape& shape, const at::Tensor& q) {
  return q * InverseNorm(q.narrow(-1, 0, shape.d_qk), shape.norm_eps);
}

// x: [..., H, in], weight: [H, in, out] -> [..., H, out], each head by its own matrix.
at::Tensor PerHead(const at::Tensor& x, const at::Tensor& weight) {
  const at::Tensor by_head = x.flatten(0, -3).transpose(0, 1);  // [H, tokens, in]
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.size(2);
  return at::bmm(by_head, weight.to(x.scalar_type())).transpose(0, 1).reshape(sizes);
}

}  // namespace

ReducedWeights Reduce(const LatentShape& shape, const LatentWeights& weights, ReducedForm form) {
  const at::NoGradGuard no_grad;
  const at::ScalarType dtype = weights.q.weight.scalar_type();
  const int64_t heads = shape.heads, d_qk = shape.d_qk, d_v = shape.d_v, rank = shape.rank;
  const bool normed = shape.normed_keys > 0;
  const double factor =
      normed ? 1
             : shape.score_factor * std::sqrt(static_cast<double>(rank + shape.d_rope) /
                                              static_cast<double>(d_qk + shape.d_rope));

  const at::Tensor kv_b = weights.kv_b.to(at::kDouble).view({heads, d_qk + d_v, rank});
  at::Tensor uk = kv_b.narrow(1, 0, d_qk);  // [H, d_qk, r]
  if (normed) uk = uk * weights.head_norm.to(at::kDouble).view({heads, d_qk, 1});
  const at::Tensor uv = kv_b.narrow(1, d_qk, d_v);  // [H, d_v, r]
  const at::Tensor q = weights.q.weight.to(at::kDouble).view({heads, d_qk + shape.d_rope, -1}) *
                       factor;  // [H, d_qk + d_R, D1]
  at::Tensor q_bias;
  if (weights.q.bias.defined()) {
    q_bias = weights.q.bias.to(at::kDouble).view({heads, -1, 1}) * factor;  // [H, d_qk + d_R, 1]
  }

  ReducedWeights reduced{.form = form,
                         .q_a = weights.q_a,
                         .q_norm = weights.q_norm,
                         .q = {},
                         .kv_a = weights.kv_a,
                         .latent_norm = weights.latent_norm,
                         .uk = {},
                         .uv = {},
                         .o = weights.o,
                         .k = weights.k};
  if (form == ReducedForm::kFactored) {
    reduced.q.weight = q.flatten(0, 1).to(dtype);
    if (q_bias.defined()) reduced.q.bias = q_bias.flatten().to(dtype);
    reduced.uk = uk.to(dtype).contiguous();
    reduced.uv = uv.to(dtype).contiguous();
    return reduced;
  }
  // Per head: W_UK[h]^T times the content rows; the rotary rows do not change.
  const auto absorb = [&](const at::Tensor& rows) {
    return at::cat(
        {at::bmm(uk.transpose(1, 2), rows.narrow(1, 0, d_qk)), rows.narrow(1, d_qk, shape.d_rope)},
        1);
  };
  reduced.q.weight = absorb(q).flatten(0, 1).to(dtype);
  if (q_bias.defined()) reduced.q.bias = absorb(q_bias).flatten().to(dtype);
  const at::Tensor o =
      weights.o.weight.to(at::kDouble).view({-1, heads, d_v}).permute({1, 0, 2});  // [H, D1, d_v]
  reduced.o.weight =
      at::bmm(o, uv).permute({1, 0, 2}).flatten(1).to(dtype).contiguous();  // [D1, H * r]
  return reduced;
}

ReducedLatentAttention::ReducedLatentAttention(const LatentShape& shape, ReducedWeights weights,
                                               Rotary rotary)
    : shape_(shape), weights_(std::move(weights)), rotary_(std::move(rotary)) {}

at::Tensor ReducedLatentAttention::Queries(const at::Tensor& x, const at::Tensor& positions) const {
  at::Tensor q = weights_.q(QuerySource(shape_, weights_.q_a, weights_.q_norm, x))
                     .unflatten(-1, {shape_.heads, -1});  // [..., H, width + d_R]
  if (shape_.normed_keys > 0) q = NormHeads(shape_, q);
  if (weights_.form == ReducedForm::kPremultiplied) {
    return RotateTail(shape_, rotary_, q, shape_.rank, positions);
  }
  const at::Tensor content = PerHead(q.narrow(-1, 0, shape_.d_qk), weights_.uk);  // [..., H, r]
  if (shape_.d_rope == 0) return content;
  return at::cat({content, rotary_.Apply(q.narrow(-1, shape_.d_qk, shape_.d_rope), positions)}, -1);
}

at::Tensor ReducedLatentAttention::Rows(const at::Tensor& y, const at::Tensor& positions) const {
  const at::Tensor rows =
      LatentRows(shape_, weights_.kv_a(y), weights_.latent_norm, rotary_, positions);
  if (shape_.normed_keys == 0) return rows;
  return at::cat({rows, InverseKeyNorms(shape_, weights_.k, y)}, -1);
}

at::Tensor ReducedLatentAttention::Output(const at::Tensor& latents) const {
  if (weights_.form == ReducedForm::kPremultiplied) return weights_.o(latents);
  return weights_.o(
      PerHead(latents.unflatten(-1, {shape_.heads, shape_.rank}), weights_.uv.transpose(1, 2))
          .flatten(-2));
}

std::pair<at::Tensor, at::Tensor> ReducedLatentAttention::KeysAndValues(
    const at::Tensor& rows) const {
  const int64_t width = shape_.rank + shape_.d_rope, normed = shape_.normed_keys;
  at::Tensor keys = rows.narrow(-1, 0, width).unsqueeze(-2);
  at::Tensor values = keys.narrow(-1, 0, shape_.rank);
  if (normed > 0) {  // a key for each inverse norm
    keys = keys * rows.narrow(-1, width, normed).unsqueeze(-1);
    std::vector<int64_t> sizes = values.sizes().vec();
    sizes[sizes.size() - 2] = normed;
    values = values.expand(sizes);
  }
  return {keys, values};
}

at::Tensor ReducedLatentAttention::Dense(const at::Tensor& x, const at::Tensor& y,
                                         bool causal) const {
  const auto [keys, values] = KeysAndValues(Rows(y, PositionsOf(y)));
  return Output(AttendDense(Queries(x, PositionsOf(x)), keys, values, scores(), causal));
}

LatentAttention::LatentAttention(const LatentShape& shape, LatentWeights weights, Rotary rotary)
    : shape_(shape), weights_(std::move(weights)), rotary_(std::move(rotary)) {}

at::Tensor LatentAttention::Dense(const at::Tensor& x, const at::Tensor& y, bool causal,
                                  CacheFormat cache, Dropout* dropout) const {
  const int64_t heads = shape_.heads, d_qk = shape_.d_qk, d_v = shape_.d_v, d_rope = shape_.d_rope;
  const bool normed = shape_.normed_keys > 0;
  at::Tensor q = weights_.q(QuerySource(shape_, weights_.q_a, weights_.q_norm, x))
                     .unflatten(-1, {heads, -1});  // [batch, L1, H, d_qk + d_R]
  if (normed) q = NormHeads(shape_, q);
  q = RotateTail(shape_, rotary_, q, d_qk, PositionsOf(x));
  const at::Tensor rows =
      AsCached(LatentRows(shape_, weights_.kv_a(y), weights_.latent_norm, rotary_, PositionsOf(y)),
               cache, std::gcd(shape_.rank, 2 * d_rope), d_rope);  // [batch, L2, r + d_R]
  const at::Tensor latent = rows.narrow(-1, 0, shape_.rank);
  const at::Tensor kv = Linear{weights_.kv_b, {}}(latent).unflatten(-1, {heads, d_qk + d_v});
  at::Tensor k = kv.narrow(-1, 0, d_qk);  // [batch, L2, H, d_qk]
  if (normed) k = k * weights_.head_norm.to(k.scalar_type()).view({heads, d_qk});
  if (d_rope > 0) {
    const at::Tensor shared = rows.narrow(-1, shape_.rank, d_rope).unsqueeze(2);
    k = at::cat({k, shared.expand({-1, -1, heads, -1})}, -1);
  }
  if (normed) {  // head h reads key h mod G
    const at::Tensor inverse = InverseKeyNorms(shape_, weights_.k, y);
    k = k * inverse.repeat({1, 1, heads / shape_.normed_keys}).unsqueeze(-1);
  }
  const double scale = shape_.score_factor / std::sqrt(static_cast<double>(d_qk + d_rope));
  return weights_.o(AttendDense(q, k, kv.narrow(-1, d_qk, d_v), {.scale = scale}, causal, dropout));
}

}  // namespace triptych
