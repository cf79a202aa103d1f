// Multi-head, grouped-query and multi-query attention on CPU kernels.
#ifndef TRIPTYCH_ENGINE_BACKEND_CPU_GROUPED_LAYER_H_
#define TRIPTYCH_ENGINE_BACKEND_CPU_GROUPED_LAYER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/backend/cpu/attention_layer.h"
#include "engine/kernels/packed_linear.h"
#include "engine/kernels/paged_attention.h"

namespace triptych::cpu {

class GroupedLayer final : public AttentionLayer {
 public:
  struct Weights {
    kernels::PackedLinear qkv;  // [H * d_qk + G * d_qk + G * d_v, D]
    kernels::PackedLinear o;    // [D, H * d_v]
    // [max_positions, 2, d_qk / 2]: cosines, then sines; null unless queries and keys are rotated.
    std::shared_ptr<const std::vector<float>> rotation;
    // RMS norms of each head's query and key: [d_qk], or empty. Over all heads together: [H * d_qk]
    // and [G * d_qk].
    std::vector<float> q_norm = {};
    std::vector<float> k_norm = {};
    float norm_eps = 0;
  };

  GroupedLayer(const kernels::PagedRowLayout& layout, const kernels::PagedScores& scores,
               Weights weights);

  void Attend(const float* x, const LayerStep& step, const kernels::PagedCache& cache,
              kernels::KernelContext& context, float* y) const override;
  int64_t weight_bytes() const override { return weights_.qkv.bytes() + weights_.o.bytes(); }

 private:
  kernels::PagedRowLayout layout_;
  kernels::PagedScores scores_;
  Weights weights_;
};

}  // namespace triptych::cpu

#endif  // TRIPTYCH_ENGINE_BACKEND_CPU_GROUPED_LAYER_H_
