// Multi-head (G = H), grouped-query and multi-query (G = 1) attention:
// engine/definitions.md#grouped-query-attention; Ainslie et al. 2023, arXiv:2305.13245.
#ifndef TRIPTYCH_ENGINE_ATTENTION_GROUPED_ATTENTION_H_
#define TRIPTYCH_ENGINE_ATTENTION_GROUPED_ATTENTION_H_

#include <cstdint>

#include "engine/attention/attention.h"
#include "engine/attention/linear.h"
#include "engine/attention/rotary.h"

namespace triptych {

// Biases are optional. Widths follow from the shapes; G divides H.
struct GroupedWeights {
  Linear q;  // [H * d_qk, D1]
  Linear k;  // [G * d_qk, D2]
  Linear v;  // [G * d_v, D2]
  Linear o;  // [D1, H * d_v]
};

// Modular grouping: query head h reads key/value head h mod G.
class GroupedAttention final : public Attention, public CachedAttention {
 public:
  // `rotary` rotates queries and keys, if defined; its width is d_qk.
  GroupedAttention(int64_t heads, int64_t groups, GroupedWeights weights, Rotary rotary = {});

  at::Tensor Dense(const at::Tensor& x, const at::Tensor& y, bool causal,
                   CacheFormat cache = CacheFormat::kFloat32) const override;

  at::Tensor Queries(const at::Tensor& x, const at::Tensor& positions) const override;
  at::Tensor Rows(const at::Tensor& y, const at::Tensor& positions) const override;
  at::Tensor Output(const at::Tensor& attended) const override { return weights_.o(attended); }
  PagedRowLayout layout() const override;
  double scale() const override { return scale_; }

 private:
  // [..., tokens, G, d_qk]
  at::Tensor Keys(const at::Tensor& y, const at::Tensor& positions) const;

  int64_t heads_;
  int64_t groups_;
  GroupedWeights weights_;
  Rotary rotary_;
  int64_t d_qk_;
  int64_t d_v_;
  double scale_;  // 1 / sqrt(d_qk)
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_ATTENTION_GROUPED_ATTENTION_H_
