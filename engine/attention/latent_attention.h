// Multi-head latent attention, vanilla and reduced:
// engine/definitions.md#multi-head-latent-attention; DeepSeek-V2, arXiv:2405.04434.
#ifndef TRIPTYCH_ENGINE_ATTENTION_LATENT_ATTENTION_H_
#define TRIPTYCH_ENGINE_ATTENTION_LATENT_ATTENTION_H_

#include <cstdint>

#include "engine/attention/attention.h"
#include "engine/attention/linear.h"
#include "engine/attention/rotary.h"
#include "engine/model/latent_shape.h"

namespace triptych {

// The factored weights of a checkpoint. d_R is 0 where there are no decoupled rotary keys.
struct LatentWeights {
  // Undefined unless queries have a rank: what they are projected from, and its RMS norm.
  Linear q_a = {};         // [query_rank, D1]
  at::Tensor q_norm = {};  // [query_rank]
  // Per head the content rows, then the rotary rows: [H * (d_qk + d_R), query_rank or D1].
  Linear q;
  Linear kv_a;             // [r + d_R, D2]: W_DKV, then the decoupled rotary key
  at::Tensor latent_norm;  // [r], or undefined: RMS norm of the latent
  at::Tensor kv_b;         // [H * (d_qk + d_v), r]: per head W_UK[h], then W_UV[h]
  Linear o;                // [D1, H * d_v]
};

// Premultiplied: q has content rows [H * r, D1] and d_R rotary rows per head. Factored: W_Q as
// stored. Either carries the factor sqrt((r + d_R) / (d_qk + d_R)) and the score factor.
struct ReducedWeights {
  ReducedForm form;
  Linear q_a;              // [query_rank, D1], or undefined
  at::Tensor q_norm;       // [query_rank], or undefined
  Linear q;                // [H * (width + d_R), query_rank or D1], per head; width r or d_qk
  Linear kv_a;             // [r + d_R, D2]
  at::Tensor latent_norm;  // [r], or undefined
  at::Tensor uk;           // [H, d_qk, r]; factored only
  at::Tensor uv;           // [H, d_v, r]; factored only
  Linear o;                // [D1, H * r] or [D1, H * d_v]
};

ReducedWeights Reduce(const LatentShape& shape, const LatentWeights& weights, ReducedForm form);

// Weight-absorbed latent attention: MHA of width r whose key and value heads are all one latent.
class ReducedLatentAttention final : public CachedAttention {
 public:
  ReducedLatentAttention(const LatentShape& shape, ReducedWeights weights, Rotary rotary);

  // x: [batch, L1, D1], y: [batch, L2, D2] -> [batch, L1, D1].
  at::Tensor Dense(const at::Tensor& x, const at::Tensor& y, bool causal) const;

  // Reduced queries: [..., tokens, H, r + d_R].
  at::Tensor Queries(const at::Tensor& x, const at::Tensor& positions) const override;
  at::Tensor Rows(const at::Tensor& y, const at::Tensor& positions) const override;
  // Weighted latents: [..., H * r] -> [..., D1].
  at::Tensor Output(const at::Tensor& latents) const override;
  kernels::PagedRowLayout layout() const override;
  double scale() const override { return shape_.reduced_scale(); }

 private:
  LatentShape shape_;
  ReducedWeights weights_;
  Rotary rotary_;
};

// Vanilla latent attention: keys and values are expanded.
class LatentAttention final : public Attention {
 public:
  LatentAttention(const LatentShape& shape, LatentWeights weights, Rotary rotary = {});

  at::Tensor Dense(const at::Tensor& x, const at::Tensor& y, bool causal,
                   CacheFormat cache = CacheFormat::kFloat32,
                   Dropout* dropout = nullptr) const override;

  // This attention with W_UK and W_UV absorbed; it shares the tensors that stay as they are.
  ReducedLatentAttention Reduced(ReducedForm form) const {
    return ReducedLatentAttention(shape_, Reduce(shape_, weights_, form), rotary_);
  }

 private:
  LatentShape shape_;
  LatentWeights weights_;
  Rotary rotary_;
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_ATTENTION_LATENT_ATTENTION_H_
