// Multi-head latent attention for serving, on kernels.
#ifndef TRIPTYCH_ENGINE_ATTENTION_PACKED_LATENT_ATTENTION_H_
#define TRIPTYCH_ENGINE_ATTENTION_PACKED_LATENT_ATTENTION_H_

#include <cstdint>
#include <vector>

#include "engine/attention/attention.h"
#include "engine/attention/linear.h"
#include "engine/attention/rotary.h"
#include "engine/kernels/packed_linear.h"

namespace triptych {

struct LatentShape;
struct ReducedWeights;
enum class ReducedForm;

// Attends reduced; and the tokens of a step that ask for it by vanilla attention, if the weights
// are factored and it can pay (cost_model.h). Const methods are safe to call from several threads.
class PackedLatentAttention {
 public:
  // Weights are float32 or bfloat16. `vanilla`: whether a step may ask for it.
  PackedLatentAttention(const LatentShape& shape, const ReducedWeights& weights, Rotary rotary,
                        bool vanilla);

  // As Attention::Paged.
  void Attend(const float* x, const PagedStep& step, const at::Tensor& cache, Workspace& workspace,
              float* y) const;

 private:
  // Consecutive tokens of a step.
  struct Tokens {
    const std::vector<TokenRun>& sequences;
    int64_t count;
    const float* queries;  // of token t [H, d_qk + d_R], at t * in_width(); factored
    float* values;         // [count, H, d_v]
  };

  int64_t in_width() const { return packed_in_.shape().outputs; }
  void AttendReduced(const Tokens& tokens, const at::Tensor& cache, Workspace& workspace) const;
  // Of one sequence. Keys and values are expanded for one head at a time.
  void AttendVanilla(const Tokens& tokens, const at::Tensor& cache, Workspace& workspace) const;

  int64_t heads_;    // H
  int64_t d_qk_;     // content width of a query or key vector
  int64_t d_v_;      // width of a value vector
  int64_t rank_;     // r
  int64_t d_rope_;   // d_R
  bool factored_;    // or premultiplied
  float scale_;      // 1 / sqrt(r + d_R)
  int64_t q_width_;  // H * (d_qk + d_R), or H * (r + d_R)
  float norm_eps_;
  Rotary rotary_;
  std::vector<float> latent_norm_;  // [r], or empty
  PackedLinear packed_in_;          // W_Q or W^_Q, then kv_a
  PackedLinear packed_uk_;          // per head [r, d_qk]; factored only
  PackedLinear packed_uv_;          // per head [d_v, r]; factored only
  PackedLinear packed_o_;           // W_O or W^_O
  // Of each head [d_qk + d_R + d_v, r], zero where the rotary key goes; empty if never vanilla.
  std::vector<PackedLinear> packed_kv_;
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_ATTENTION_PACKED_LATENT_ATTENTION_H_
