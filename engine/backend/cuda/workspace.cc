#include "engine/backend/cuda/workspace.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "engine/backend/cuda/cuda_weights.h"
#include "engine/backend/cuda/likely_tokens.h"
#include "engine/backend/cuda/step_buffers.h"
#include "engine/model/latent_shape.h"

namespace triptych::cuda {
namespace {

// Bytes for partial results of attention; they bound how many rows one launch attends.
constexpr int64_t kSplitBytes = int64_t{128} << 20;

// Bytes of the expanded keys and values of a pass.
constexpr int64_t kExpandedBytes = int64_t{256} << 20;

// Number of splits of a context; 0 if the layer's kernels do not split.
int SplitsOf(const AttentionLayout& layout, int context) {
  if (SupportsLatentAttention(layout)) return LatentSplits(context);
  if (SupportsGroupedDecode(layout)) return GroupedSplits(context);
  return 0;
}

void SizeExpansion(const ModelConfig& config, const BackendOptions& options, int64_t from,
                   WorkspaceSizes& sizes) {
  int64_t latent_width = 0;
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    if (!ExpandsPrompts(config, i, options.block_positions)) continue;
    latent_width = std::max(latent_width, CacheRowElements(config, i));
  }
  const int64_t heads = config.num_attention_heads, d_v = config.ValueDim();
  const int64_t width = latent_width + heads * (config.head_dim + d_v);
  // Room for two whole steps, so that one pass serves most prompts.
  const int64_t positions =
      std::min(2 * options.max_step_tokens, kExpandedBytes / (2 * width)) / kPassAlignment;
  sizes.expansion = {.from = from,
                     .positions = std::max<int64_t>(positions, 1) * kPassAlignment,
                     .rows = sizes.split_sums / (heads * (d_v + kPrefillState<0>))};
  sizes.latents = sizes.expansion.positions * latent_width;
  sizes.expanded_keys = sizes.expansion.positions * heads * config.head_dim;
  sizes.expanded_values = sizes.expansion.positions * heads * d_v;
}

}  // namespace

AttentionLayout LayoutOf(const ModelConfig& config, int64_t layer, int64_t block_positions) {
  AttentionLayout layout{
      .heads = static_cast<int>(config.num_attention_heads),
      .groups = 1,
      .key_width = 0,
      .value_width = 0,
      .value_offset = 0,
      .row_width = static_cast<int>(CacheRowElements(config, layer) - config.NormedKeys()),
      .block_positions = static_cast<int>(block_positions),
      .normed_keys = static_cast<int>(config.NormedKeys())};
  if (config.attention == AttentionKind::kMla) {
    layout.key_width = layout.row_width;
    layout.value_width = static_cast<int>(LatentShapeOf(config, layer).rank);
  } else {
    layout.groups = static_cast<int>(config.num_key_value_heads);
    layout.key_width = layout.value_width = static_cast<int>(config.head_dim);
    layout.value_offset = layout.groups * layout.key_width;
  }
  return layout;
}

bool ExpandsPrompts(const ModelConfig& config, int64_t layer, int64_t block_positions) {
  if (config.attention != AttentionKind::kMla) return false;
  const LatentShape shape = LatentShapeOf(config, layer);
  return SmallerForm(shape, config.hidden_size) == ReducedForm::kFactored &&
         shape.normed_keys == 0 &&
         SupportsLatentAttention(LayoutOf(config, layer, block_positions)) &&
         SupportsExpandedPrefill(shape.d_qk, shape.d_v, shape.d_rope);
}

std::optional<int64_t> ExpandFrom(const ModelConfig& config, const BackendOptions& options) {
  const int64_t from = options.expand_from.value_or(0);
  if (from >= config.max_position_embeddings) return std::nullopt;
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    if (ExpandsPrompts(config, i, options.block_positions)) return from;
  }
  return std::nullopt;
}

WorkspaceSizes SizeWorkspace(const ModelConfig& config, const BackendOptions& options) {
  WorkspaceSizes sizes;
  // Padding adds at most 63 rows to a step without prefill, 15 to one with.
  const int64_t rows = PaddedRows(std::max<int64_t>(options.max_step_tokens, 64)) + 64;
  const int64_t heads = config.num_attention_heads;
  const auto widen = [rows](int64_t& size, int64_t width) { size = std::max(size, rows * width); };
  widen(sizes.residual, config.hidden_size);
  widen(sizes.branch, config.norm_outputs ? config.hidden_size : 0);
  widen(sizes.head_factors, config.qk_norm_all_heads ? 2 : 0);
  widen(sizes.normal, config.hidden_size);
  widen(sizes.activated, config.intermediate_size);
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const CudaLayerWeights layer = LayerShapes(config, i);
    const AttentionLayout layout = LayoutOf(config, i, options.block_positions);
    widen(sizes.projected, layer.in.outputs);
    widen(sizes.low_rank, layer.query_up.inputs);
    widen(sizes.projected_queries, layer.query_up.outputs);
    widen(sizes.content, heads * layer.uk.inputs);
    widen(sizes.queries, heads * layout.key_width);
    widen(sizes.attended, heads * layout.value_width);
    widen(sizes.values, layer.uv.outputs);
    widen(sizes.mlp_in, layer.mlp_in.outputs);
    // Steps round the longest context up to a power of two.
    const auto longest = std::bit_ceil(static_cast<uint32_t>(config.max_position_embeddings));
    const int splits = SplitsOf(layout, static_cast<int>(std::min<uint32_t>(longest, INT32_MAX)));
    if (splits == 0) continue;
    const int64_t stats = std::max(heads * splits, kSplitBytes / (int64_t{4} * layout.value_width));
    sizes.split_stats = std::max(sizes.split_stats, stats);
    sizes.split_sums = std::max(sizes.split_sums, stats * layout.value_width);
  }
  if (const std::optional<int64_t> from = ExpandFrom(config, options)) {
    SizeExpansion(config, options, *from, sizes);
  }
  sizes.logit_inputs = kLogitRows * config.hidden_size;
  sizes.logits = kLogitRows * config.vocab_size;
  sizes.likely_tokens = kLogitRows * LikelyTokenCount(config.vocab_size);
  return sizes;
}

}  // namespace triptych::cuda
