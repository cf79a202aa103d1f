// Scratch device memory of steps.
#ifndef TRIPTYCH_ENGINE_BACKEND_CUDA_WORKSPACE_H_
#define TRIPTYCH_ENGINE_BACKEND_CUDA_WORKSPACE_H_

#include <cstdint>
#include <optional>

#include "engine/backend/cuda/attention_kernels.h"
#include "engine/backend/cuda/device_memory.h"
#include "engine/backend/cuda/matmul.h"
#include "engine/backend/cuda/step_buffers.h"
#include "engine/backend/model_backend.h"
#include "engine/model/config.h"

namespace triptych::cuda {

// Logits are computed for this many rows at a time.
inline constexpr int64_t kLogitRows = 256;

// Layout of a layer's cache rows.
AttentionLayout LayoutOf(const ModelConfig& config, int64_t layer, int64_t block_positions);

// Whether a layer's prompts can be attended over expanded keys and values.
bool ExpandsPrompts(const ModelConfig& config, int64_t layer, int64_t block_positions);
// The first prompt position that such layers attend so; absent if there is none. By default all
// positions: expanding a fresh prompt costs what its reduced queries and values would.
std::optional<int64_t> ExpandFrom(const ModelConfig& config, const BackendOptions& options);

// Sizes of the arrays of a Workspace, in elements.
struct WorkspaceSizes {
  int64_t residual = 0;           // [rows, D] float32
  int64_t branch = 0;             // [rows, D] float32: an output that is normed before it is added
  int64_t normal = 0;             // [rows, D]
  int64_t projected = 0;          // [rows, outputs of `in`] float32
  int64_t head_factors = 0;       // [rows, 2] float32: of norms over all heads
  int64_t low_rank = 0;           // [rows, query_rank]
  int64_t projected_queries = 0;  // [rows, outputs of `query_up`] float32
  int64_t content = 0;            // [rows, H, d_qk], of factored queries
  int64_t queries = 0;            // [rows, H, key_width]
  int64_t attended = 0;           // [rows, H, value_width]
  int64_t values = 0;             // [rows, H, d_v], of factored weights
  int64_t latents = 0;            // [positions of a pass, r + d_R]
  int64_t expanded_keys = 0;      // [positions of a pass, H, d_qk]
  int64_t expanded_values = 0;    // [positions of a pass, H, d_v]
  int64_t mlp_in = 0;             // [rows, outputs of `mlp_in`]
  int64_t activated = 0;          // [rows, intermediate]
  int64_t split_stats = 0;
  int64_t split_sums = 0;    // float32; also the states of prefill rows
  int64_t logit_inputs = 0;  // [kLogitRows, D]
  int64_t logits = 0;        // [kLogitRows, vocab] float32

  int64_t likely_tokens = 0;  // [kLogitRows, LikelyTokenCount], int32; again in float32
  ExpansionLimits expansion;

  int64_t bytes() const {
    return 4 * (residual + branch + projected + head_factors + projected_queries + split_sums +
                logits) +
           8 * (split_stats + likely_tokens + 2 * kLogitRows) +
           2 * (normal + low_rank + content + queries + attended + values + latents +
                expanded_keys + expanded_values + mlp_in + activated + logit_inputs) +
           Matmuls::kWorkspaceBytes;
  }
};

// For steps of at most options.max_step_tokens tokens.
WorkspaceSizes SizeWorkspace(const ModelConfig& config, const BackendOptions& options);

struct Workspace {
  Workspace() = default;
  explicit Workspace(const WorkspaceSizes& sizes)
      : residual(sizes.residual),
        branch(sizes.branch),
        normal(sizes.normal),
        projected(sizes.projected),
        head_factors(sizes.head_factors),
        low_rank(sizes.low_rank),
        projected_queries(sizes.projected_queries),
        content(sizes.content),
        queries(sizes.queries),
        attended(sizes.attended),
        values(sizes.values),
        latents(sizes.latents),
        expanded_keys(sizes.expanded_keys),
        expanded_values(sizes.expanded_values),
        mlp_in(sizes.mlp_in),
        activated(sizes.activated),
        split_stats(sizes.split_stats),
        split_sums(sizes.split_sums),
        logit_inputs(sizes.logit_inputs),
        logits(sizes.logits),
        likely_tokens(sizes.likely_tokens),
        likely_logits(sizes.likely_tokens),
        log_sum_exps(kLogitRows),
        weight_sums(kLogitRows) {}

  DeviceArray<float> residual, branch;
  DeviceArray<BFloat16> normal;
  DeviceArray<float> projected, head_factors;
  DeviceArray<BFloat16> low_rank;
  DeviceArray<float> projected_queries;
  DeviceArray<BFloat16> content, queries, attended, values;
  DeviceArray<BFloat16> latents, expanded_keys, expanded_values;
  DeviceArray<BFloat16> mlp_in, activated;
  DeviceArray<float2> split_stats;
  DeviceArray<float> split_sums;
  DeviceArray<BFloat16> logit_inputs;
  DeviceArray<float> logits;
  DeviceArray<int32_t> likely_tokens;
  DeviceArray<float> likely_logits;
  DeviceArray<double> log_sum_exps, weight_sums;
};

}  // namespace triptych::cuda

#endif  // TRIPTYCH_ENGINE_BACKEND_CUDA_WORKSPACE_H_
