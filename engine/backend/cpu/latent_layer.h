// Multi-head latent attention on kernels (engine/definitions.md#reduction). Torch-free.
#ifndef TRIPTYCH_ENGINE_BACKEND_CPU_LATENT_LAYER_H_
#define TRIPTYCH_ENGINE_BACKEND_CPU_LATENT_LAYER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/backend/cpu/attention_layer.h"
#include "engine/kernels/packed_linear.h"
#include "engine/kernels/paged_attention.h"
#include "engine/model/latent_shape.h"

namespace triptych::cpu {

// Attends reduced; and those runs of a step that ask for it by expanded attention, if the weights
// are factored and expansion was prepared.
class LatentLayer final : public AttentionLayer {
 public:
  struct Weights {
    // The reduced queries, W_Q (factored) or W^_Q (premultiplied), then kv_a. Of queries that have
    // a rank, what they are made from, then kv_a.
    kernels::PackedLinear in;
    struct LowRankQueries {
      std::vector<float> norm;   // [query_rank]
      kernels::PackedLinear up;  // the reduced queries: [.., query_rank]
    };
    std::optional<LowRankQueries> low_rank_queries;
    kernels::PackedLinear o;         // W_O or W^_O
    std::vector<float> latent_norm;  // [r], or empty
    // [max_positions, 2, d_R / 2]: cosines, then sines; null where d_R is 0.
    std::shared_ptr<const std::vector<float>> rotation;
    // Factored weights alone have these.
    struct Factors {
      kernels::PackedLinear uk;  // per head W_UK[h]^T: [r, d_qk]
      kernels::PackedLinear uv;  // per head W_UV[h]: [d_v, r]
      // Per head W_UK[h]: [d_qk, r]. The one weight that is held twice: a product reads its inputs
      // along the other side. Absent if no run asks for expanded attention.
      std::optional<kernels::PackedLinear> expand_keys;
    };
    std::optional<Factors> factors;
  };

  LatentLayer(const LatentShape& shape, Weights weights);

  void Attend(const float* x, const LayerStep& step, const kernels::PagedCache& cache,
              kernels::KernelContext& context, float* y) const override;
  int64_t weight_bytes() const override;
  int64_t expanded_width() const override;

 private:
  // Consecutive runs of a step that are attended in one way.
  struct Span {
    std::span<const kernels::TokenRun> runs;
    int64_t tokens;
    const float* queries;  // of token t [H, d_qk + d_R], at t * projected_width(); factored
    float* values;         // [tokens, H, d_v]
  };

  int64_t row_width() const { return shape_.rank + shape_.d_rope; }
  // Elements of all heads' queries.
  int64_t query_width() const {
    return weights_.low_rank_queries ? weights_.low_rank_queries->up.shape().outputs
                                     : weights_.in.shape().outputs - row_width();
  }
  int64_t projected_width() const { return query_width() + row_width(); }

  // x: [tokens, D] -> projected: [tokens, projected_width()], queries, then what kv_a gives
  void Project(const float* x, int64_t tokens, float* projected,
               kernels::KernelContext& context) const;
  // Norms the latents and rotates queries and decoupled keys in place.
  //   projected: as Project gives it
  void NormAndRotate(const LayerStep& step, float* projected,
                     kernels::KernelContext& context) const;
  // The values of factored weights for every run, each in its way: [tokens, H, d_v].
  void AttendFactored(const LayerStep& step, const float* projected,
                      const kernels::PagedCache& cache, kernels::KernelContext& context,
                      float* values) const;
  void AttendReduced(const Span& span, const kernels::PagedCache& cache,
                     kernels::KernelContext& context) const;
  // One run. Keys and values that nobody keeps are expanded for one head at a time.
  void AttendExpanded(const Span& span, ExpandedRows* kept, const kernels::PagedCache& cache,
                      kernels::KernelContext& context) const;
  // Keys and values of `heads` heads from `head` on, of positions as `to` says.
  //   latents: [to.count, r + d_R]
  void Expand(const float* latents, int64_t head, int64_t heads, const kernels::TokenRun& to,
              const kernels::PagedCache& keys_and_values, kernels::KernelContext& context) const;

  LatentShape shape_;
  kernels::PagedRowLayout layout_;
  float scale_;  // 1 / sqrt(r + d_R)
  Weights weights_;
};

}  // namespace triptych::cpu

#endif  // TRIPTYCH_ENGINE_BACKEND_CPU_LATENT_LAYER_H_
