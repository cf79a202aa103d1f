// Multi-head latent attention, vanilla and reduced:
// engine/definitions.md#multi-head-latent-attention; DeepSeek-V2, arXiv:2405.04434.
#ifndef TRIPTYCH_ENGINE_ATTENTION_LATENT_ATTENTION_H_
#define TRIPTYCH_ENGINE_ATTENTION_LATENT_ATTENTION_H_

#include <cstdint>
#include <memory>

#include "engine/attention/attention.h"
#include "engine/attention/linear.h"
#include "engine/attention/packed_latent_attention.h"
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

  double reduced_scale() const;  // 1 / sqrt(r + d_R)
};

// The two forms the reduced weights can take; results are equal.
enum class ReducedForm {
  kFactored,       // W_Q then W_UK^T; W_UV then W_O: 2D^2 + 3rD elements in the decoder
  kPremultiplied,  // W^_Q and W^_O: (2H + 1)rD elements
};

// "factored" or "premultiplied".
const char* Name(ReducedForm form);

// Premultiplied: q has content rows [H * r, D1] and d_R rotary rows per head. Factored: W_Q as
// stored. Either carries the factor sqrt((r + d_R) / (d_qk + d_R)).
struct ReducedWeights {
  ReducedForm form;
  Linear q;                // [H * (width + d_R), D1], per head; width r or d_qk
  Linear kv_a;             // [r + d_R, D2]
  at::Tensor latent_norm;  // [r], or undefined
  at::Tensor uk;           // [H, d_qk, r]; factored only
  at::Tensor uv;           // [H, d_v, r]; factored only
  Linear o;                // [D1, H * r] or [D1, H * d_v]
};

ReducedWeights Reduce(const LatentShape& shape, const LatentWeights& weights, ReducedForm form);

// The form that has fewer elements to read, for queries of D1 = `width`.
ReducedForm SmallerForm(const LatentShape& shape, int64_t width);

// Of a cache row [r + d_R].
PagedRowLayout LatentRowLayout(int64_t heads, int64_t rank, int64_t d_rope);

// Weight-absorbed latent attention: MHA of width r whose key and value heads are all one latent.
class ReducedLatentAttention {
 public:
  ReducedLatentAttention(const LatentShape& shape, ReducedWeights weights, Rotary rotary);

  // x: [batch, L1, D1], y: [batch, L2, D2] -> [batch, L1, D1].
  at::Tensor Dense(const at::Tensor& x, const at::Tensor& y, bool causal) const;

  // x: [..., D1], positions: [tokens] -> reduced queries [..., H, r + d_R], to be scaled by
  // scale().
  at::Tensor Queries(const at::Tensor& x, const at::Tensor& positions) const;
  // y: [..., D2] -> cache rows [..., r + d_R].
  at::Tensor Rows(const at::Tensor& y, const at::Tensor& positions) const;
  // Weighted latents [..., H * r] -> [..., D1].
  at::Tensor Output(const at::Tensor& latents) const;

  double scale() const { return shape_.reduced_scale(); }

 private:
  LatentShape shape_;
  ReducedWeights weights_;
  Rotary rotary_;
};

// Dense is vanilla: keys and values are expanded. Paged is reduced, but for the tokens of a step on
// kernels that ask for vanilla.
class LatentAttention final : public Attention {
 public:
  LatentAttention(const LatentShape& shape, LatentWeights weights, Rotary rotary = {});

  at::Tensor Dense(const at::Tensor& x, const at::Tensor& y, bool causal) const override;
  // Chooses the reduced form that has fewer elements to read.
  void PrepareToServe(bool vanilla) override;
  void DropDense() override { weights_ = {}; }
  void Paged(const float* x, const PagedStep& step, const at::Tensor& cache, Workspace& workspace,
             float* y) const override;
  at::Tensor Paged(const at::Tensor& x, const TensorStep& step,
                   const at::Tensor& cache) const override;

  ReducedLatentAttention Reduce(ReducedForm form) const;

 private:
  LatentShape shape_;
  LatentWeights weights_;
  Rotary rotary_;
  // To serve: one of them.
  std::unique_ptr<PackedLatentAttention> packed_;    // on kernels
  std::unique_ptr<ReducedLatentAttention> reduced_;  // on LibTorch's operations
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_ATTENTION_LATENT_ATTENTION_H_
