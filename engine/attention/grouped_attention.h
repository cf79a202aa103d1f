// Multi-head (G = H), grouped-query and multi-query (G = 1) attention:
// engine/definitions.md#grouped-query-attention; Ainslie et al. 2023, arXiv:2305.13245.
#ifndef TRIPTYCH_ENGINE_ATTENTION_GROUPED_ATTENTION_H_
#define TRIPTYCH_ENGINE_ATTENTION_GROUPED_ATTENTION_H_

#include <cstdint>
#include <limits>

#include "engine/attention/attention.h"
#include "engine/attention/linear.h"
#include "engine/attention/rotary.h"

namespace triptych {

// Biases are optional. Widths follow from the shapes. REQUIRES: G divides H.
struct GroupedWeights {
  Linear q;  // [H * d_qk, D1]
  Linear k;  // [G * d_qk, D2]
  Linear v;  // [G * d_v, D2]
  Linear o;  // [D1, H * d_v]
  // RMS norms of each head's query and key: [d_qk], or undefined. Over all heads together:
  // [H * d_qk] and [G * d_qk].
  at::Tensor q_norm = {};
  at::Tensor k_norm = {};
};

struct GroupedOptions {
  Rotary rotary = {};       // of queries and keys, if defined; of width d_qk
  double norm_eps = 0;      // of q_norm and k_norm
  double score_factor = 1;  // multiplies 1 / sqrt(d_qk)
  double softcap = 0;       // of scores, as in ScoreOptions
  int64_t window = std::numeric_limits<int64_t>::max();
};

// Modular grouping: query head h reads key/value head h mod G.
class GroupedAttention final : public Attention, public CachedAttention {
 public:
  GroupedAttention(int64_t heads, int64_t groups, GroupedWeights weights,
                   GroupedOptions options = {});

  at::Tensor Dense(const at::Tensor& x, const at::Tensor& y, bool causal,
                   CacheFormat cache = CacheFormat::kFloat32,
                   Dropout* dropout = nullptr) const override;

  at::Tensor Queries(const at::Tensor& x, const at::Tensor& positions) const override;
  at::Tensor Rows(const at::Tensor& y, const at::Tensor& positions) const override;
  at::Tensor Output(const at::Tensor& attended) const override { return weights_.o(attended); }
  std::pair<at::Tensor, at::Tensor> KeysAndValues(const at::Tensor& rows) const override;
  ScoreOptions scores() const override { return scores_; }

 private:
  // heads: [..., tokens, heads, d_qk] -> the same shape; normed if `norm` is defined, and rotated
  at::Tensor NormAndRotate(const at::Tensor& heads, const at::Tensor& norm,
                           const at::Tensor& positions) const;
  // [..., tokens, G, d_qk]
  at::Tensor Keys(const at::Tensor& y, const at::Tensor& positions) const;

  int64_t heads_;
  int64_t groups_;
  GroupedWeights weights_;
  GroupedOptions options_;
  int64_t d_qk_;
  int64_t d_v_;
  ScoreOptions scores_;
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_ATTENTION_GROUPED_ATTENTION_H_
