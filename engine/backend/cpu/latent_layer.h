// Multi-head latent attention on CPU kernels (engine/definitions.md#reduction).
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

// Attends by the reduced path. Runs that ask for it take the expanded path, if the weights have
// Factors::expand_keys.
class LatentLayer final : public AttentionLayer {
 public:
  struct Weights {
    // The query projection, W_Q (factored) or W^_Q (premultiplied), then kv_a. With low-rank
    // queries, their down-projection, then kv_a. With normed keys, W_Q, kv_a, then W_K.
    kernels::PackedLinear in;
    struct LowRankQueries {
      std::vector<float> norm;   // [query_rank]
      kernels::PackedLinear up;  // W_Q or W^_Q: [.., query_rank]
    };
    std::optional<LowRankQueries> low_rank_queries;
    kernels::PackedLinear o;         // W_O or W^_O
    std::vector<float> latent_norm;  // [r], or empty
    // [max_positions, 2, d_R / 2]: cosines, then sines; null if d_R is 0.
    std::shared_ptr<const std::vector<float>> rotation;
    // Present only if the weights are factored.
    struct Factors {
      kernels::PackedLinear uk;  // per head W_UK[h]^T: [r, d_qk]
      kernels::PackedLinear uv;  // per head W_UV[h]: [d_v, r]
      // Per head W_UK[h]: [d_qk, r]. The only weight that is held twice: this product sums over the
      // other dimension. Absent if no run takes the expanded path.
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
  // Consecutive runs of a step that take the same path.
  struct Span {
    std::span<const kernels::TokenRun> runs;
    int64_t tokens;
    const float* queries;  // of token t [H, d_qk + d_R], at t * projected_width(); factored
    float* values;         // [tokens, H, d_v]
  };

  int64_t row_width() const { return shape_.rank + shape_.d_rope; }
  // Elements of the keys that inverse norms are of.
  int64_t normed_width() const { return shape_.normed_keys * shape_.d_qk; }
  // Elements of all heads' queries.
  int64_t query_width() const {
    return weights_.low_rank_queries ? weights_.low_rank_queries->up.shape().outputs
                                     : weights_.in.shape().outputs - row_width() - normed_width();
  }
  int64_t projected_width() const { return query_width() + row_width() + normed_width(); }

  // x: [tokens, D] -> projected: [tokens, projected_width()], queries, the output of kv_a, then the
  // keys that inverse norms are of
  void Project(const float* x, int64_t tokens, float* projected,
               kernels::KernelContext& context) const;
  // Norms the latents and rotates queries and decoupled keys in place. With normed keys, divides
  // queries by their norms and puts the keys' inverse norms in the place of the keys.
  //   projected: as Project writes it
  void NormAndRotate(const LayerStep& step, float* projected,
                     kernels::KernelContext& context) const;
  // Attends every run by its path, with factored weights.
  //   values: [tokens, H, d_v]
  void AttendFactored(const LayerStep& step, const float* projected,
                      const kernels::PagedCache& cache, kernels::KernelContext& context,
                      float* values) const;
  void AttendReduced(const Span& span, const kernels::PagedCache& cache,
                     kernels::KernelContext& context) const;
  // Attends one run. If `kept` is null, keys and values are expanded one head at a time.
  void AttendExpanded(const Span& span, ExpandedRows* kept, const kernels::PagedCache& cache,
                      kernels::KernelContext& context) const;
  // Expands the keys and values of `heads` heads from `head` on, for the positions of `to`.
  //   latents: [to.count, r + d_R]   norms: [normed keys, to.count]
  void Expand(const float* latents, const float* norms, int64_t head, int64_t heads,
              const kernels::TokenRun& to, const kernels::PagedCache& keys_and_values,
              kernels::KernelContext& context) const;

  LatentShape shape_;
  kernels::PagedRowLayout layout_;
  float scale_;  // LatentShape::reduced_scale
  Weights weights_;
};

}  // namespace triptych::cpu

#endif  // TRIPTYCH_ENGINE_BACKEND_CPU_LATENT_LAYER_H_
