// Multi-head latent attention, expanded and reduced:
// engine/definitions.md#multi-head-latent-attention; DeepSeek-V2, arXiv:2405.04434.
#ifndef TRIPTYCH_ENGINE_ATTENTION_LATENT_ATTENTION_H_
#define TRIPTYCH_ENGINE_ATTENTION_LATENT_ATTENTION_H_

#include <cstdint>
#include <utility>

#include "engine/attention/attention.h"
#include "engine/attention/linear.h"
#include "engine/attention/rotary.h"
#include "engine/model/latent_shape.h"

namespace triptych {

// Factored weights as a checkpoint stores them. d_R is 0 without decoupled rotary keys.
struct LatentWeights {
  // Down-projection of low-rank queries and its RMS norm; undefined unless queries have a rank.
  Linear q_a = {};         // [query_rank, D1]
  at::Tensor q_norm = {};  // [query_rank]
  // Per head the content rows, then the rotary rows: [H * (d_qk + d_R), query_rank or D1].
  Linear q;
  Linear kv_a;             // [r + d_R, D2]: W_DKV, then the decoupled rotary key
  at::Tensor latent_norm;  // [r], or undefined: RMS norm of the latent
  at::Tensor kv_b;         // [H * (d_qk + d_v), r]: per head W_UK[h], then W_UV[h]
  Linear o;                // [D1, H * d_v]
  // With normed keys: the keys that the inverse norms are of, and the weight of the norm of each
  // head's content.
  Linear k = {};              // [G * d_qk, D2]
  at::Tensor head_norm = {};  // [H * d_qk]
};

// Weights of the reduced path. Premultiplied: q has r content rows and d_R rotary rows per head.
// Factored: q has the rows of W_Q as stored. Both forms of q include the factor sqrt((r + d_R) /
// (d_qk + d_R)) and the score factor, except with normed keys, whose uk has head_norm.
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
  Linear k;                // [G * d_qk, D2], or undefined
};

// Computes products of weights in float64 and rounds them once, to the dtype of weights.q. Shares
// the tensors that do not change. REQUIRES: with normed keys, ReducedForm::kFactored.
ReducedWeights Reduce(const LatentShape& shape, const LatentWeights& weights, ReducedForm form);

// Reduced latent attention (absorbed weights): all H query heads read the latent itself as their
// key and value. A row has the latent, k_R, then the inverse norms of normed keys.
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
  std::pair<at::Tensor, at::Tensor> KeysAndValues(const at::Tensor& rows) const override;
  ScoreOptions scores() const override { return {.scale = shape_.reduced_scale()}; }

 private:
  LatentShape shape_;
  ReducedWeights weights_;
  Rotary rotary_;
};

// Expanded latent attention: keys and values are expanded from the latents.
class LatentAttention final : public Attention {
 public:
  LatentAttention(const LatentShape& shape, LatentWeights weights, Rotary rotary = {});

  at::Tensor Dense(const at::Tensor& x, const at::Tensor& y, bool causal,
                   CacheFormat cache = CacheFormat::kFloat32,
                   Dropout* dropout = nullptr) const override;

  // The same attention with W_UK and W_UV absorbed. Shares the tensors that do not change.
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
