// Multi-head latent attention, vanilla and reduced: definitions, section 4; DeepSeek-V2,
// arXiv:2405.04434.
#ifndef TRIPTYCH_ENGINE_ATTENTION_LATENT_ATTENTION_H_
#define TRIPTYCH_ENGINE_ATTENTION_LATENT_ATTENTION_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/attention/attention.h"
#include "engine/attention/linear.h"
#include "engine/attention/rotary.h"

namespace triptych {

// The factored weights of a checkpoint. d_R is 0 where there are no decoupled rotary keys.
struct LatentWeights {
  Linear q;     // [H * (d_qk + d_R), D1]: per head the content rows, then the rotary rows
  Linear kv_a;  // [r + d_R, D2]: W_DKV, then the decoupled rotary key
  at::Tensor latent_norm;  // [r], or undefined: RMS norm of the latent
  at::Tensor kv_b;         // [H * (d_qk + d_v), r]: per head W_UK[h], then W_UV[h]
  Linear o;                // [D1, H * d_v]
};

struct LatentShape {
  int64_t heads;        // H
  int64_t d_qk;         // content width of a query or key vector
  int64_t d_v;          // width of a value vector
  int64_t rank;         // r
  int64_t d_rope = 0;   // d_R
  double norm_eps = 0;  // of the latent norm
};

// The two forms the reduced weights can take; results are equal.
enum class ReducedForm {
  kFactored,       // W_Q then W_UK^T; W_UV then W_O: 2D^2 + 3rD elements in the decoder
  kPremultiplied,  // W^_Q and W^_O: (2H + 1)rD elements
};

// Weight-absorbed latent attention: MHA of width r whose key and value heads are all one latent.
class ReducedLatentAttention {
 public:
  ReducedLatentAttention(const LatentShape& shape, const LatentWeights& weights, Rotary rotary,
                         ReducedForm form);

  // x: [batch, L1, D1], y: [batch, L2, D2] -> [batch, L1, D1]. REQUIRES: not packed.
  at::Tensor Dense(const at::Tensor& x, const at::Tensor& y, bool causal) const;

  // x: [..., D1], positions: [tokens] -> reduced queries [..., H, r + d_R], to be scaled by
  // scale(). REQUIRES: not packed, as below.
  at::Tensor Queries(const at::Tensor& x, const at::Tensor& positions) const;
  // y: [..., D2] -> cache rows [..., r + d_R].
  at::Tensor Rows(const at::Tensor& y, const at::Tensor& positions) const;
  // Weighted latents [..., H * r] -> [..., D1].
  at::Tensor Output(const at::Tensor& latents) const;

  // Rearranges the weights, in float32 or bfloat16, for self-attention in float32, and keeps no
  // other copy of them.
  void Pack();
  // What new tokens ask and what they leave in the cache. REQUIRES: Pack(), as below.
  struct QueriesAndRows {
    const float* queries;  // of token t [H, r + d_R], at t * queries_stride
    int64_t queries_stride;
    const float* rows;  // of token t [r + d_R], at t * rows_stride
    int64_t rows_stride;
  };
  //   x: [tokens, D]; the results are the workspace's
  QueriesAndRows PackedInputs(const float* x, const std::vector<int64_t>& positions,
                              Workspace& workspace) const;
  //   latents: weighted [tokens, H * r]   y: [tokens, D]
  void PackedOutput(const float* latents, int64_t tokens, Workspace& workspace, float* y) const;

  double scale() const { return scale_; }  // 1 / sqrt(r + d_R)
  ReducedForm form() const { return form_; }

 private:
  LatentShape shape_;
  ReducedForm form_;
  double scale_;
  Rotary rotary_;
  // Premultiplied: content rows [H * r, D1] and d_R rotary rows per head. Factored: W_Q as stored.
  // Both carry the factor sqrt((r + d_R) / (d_qk + d_R)).
  int64_t q_width_;  // H * (width + d_R)

  // Until packed.
  at::Tensor latent_norm_;  // [r], or undefined
  Linear kv_a_;             // [r + d_R, D2]
  Linear q_;                // [H * (width + d_R), D1], per head; width r or d_qk
  at::Tensor uk_;           // [H, d_qk, r]; factored only
  at::Tensor uv_t_;         // [H, r, d_v]; factored only
  Linear o_;                // [D1, H * r] or [D1, H * d_v]

  // Once packed.
  PackedLinear packed_in_;  // q_, then kv_a_
  PackedLinear packed_uk_;  // per head [r, d_qk]; factored only
  PackedLinear packed_uv_;  // per head [d_v, r]; factored only
  PackedLinear packed_o_;
  std::vector<float> packed_latent_norm_;  // [r], or empty
};

// Dense is vanilla: keys and values are expanded. Paged is reduced.
class LatentAttention final : public Attention {
 public:
  LatentAttention(const LatentShape& shape, LatentWeights weights, Rotary rotary = {});

  at::Tensor Dense(const at::Tensor& x, const at::Tensor& y, bool causal) const override;
  // Chooses the reduced form that has fewer elements to read.
  void PrepareToServe() override;
  void DropDense() override { weights_ = {}; }
  void Paged(const float* x, const PagedStep& step, const at::Tensor& cache, Workspace& workspace,
             float* y) const override;
  at::Tensor Paged(const at::Tensor& x, const TensorStep& step,
                   const at::Tensor& cache) const override;

  ReducedLatentAttention Reduce(ReducedForm form) const;

 private:
  PagedRowLayout RowLayout() const;

  LatentShape shape_;
  LatentWeights weights_;
  Rotary rotary_;
  std::unique_ptr<ReducedLatentAttention> reduced_;  // packed if it serves on kernels
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_ATTENTION_LATENT_ATTENTION_H_
