// Multi-head (G = H), grouped-query and multi-query (G = 1) attention:
// engine/definitions.md#grouped-query-attention; Ainslie et al. 2023, arXiv:2305.13245.
#ifndef TRIPTYCH_ENGINE_ATTENTION_GROUPED_ATTENTION_H_
#define TRIPTYCH_ENGINE_ATTENTION_GROUPED_ATTENTION_H_

#include "engine/attention/attention.h"
#include "engine/attention/linear.h"
#include "engine/attention/rotary.h"

namespace triptych {

// Modular grouping: query head h reads key/value head h mod G.
class GroupedAttention final : public Attention {
 public:
  // Biases are optional. Widths follow from the shapes; G divides H.
  struct Weights {
    Linear q;  // [H * d_qk, D1]
    Linear k;  // [G * d_qk, D2]
    Linear v;  // [G * d_v, D2]
    Linear o;  // [D1, H * d_v]
  };

  // `rotary` rotates queries and keys, if defined; its width is d_qk.
  GroupedAttention(int64_t heads, int64_t groups, Weights weights, Rotary rotary = {});

  at::Tensor Dense(const at::Tensor& x, const at::Tensor& y, bool causal) const override;
  void PrepareToServe(bool vanilla) override;
  void DropDense() override;
  void Paged(const float* x, const PagedStep& step, const at::Tensor& cache, Workspace& workspace,
             float* y) const override;
  at::Tensor Paged(const at::Tensor& x, const TensorStep& step,
                   const at::Tensor& cache) const override;

 private:
  PagedRowLayout RowLayout() const;

  int64_t heads_;
  int64_t groups_;
  Weights weights_;
  Rotary rotary_;
  int64_t d_qk_;
  int64_t d_v_;
  double scale_;  // 1 / sqrt(d_qk)
  PackedLinear packed_qkv_;
  PackedLinear packed_o_;
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_ATTENTION_GROUPED_ATTENTION_H_
