#include "engine/decoder/engine_order.h"

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "engine/decoder/tensor_specs.h"

namespace triptych {
namespace {

// Rows (i, i + d/2) of each head become rows (2i, 2i+1). rows: [heads * d, ...].
at::Tensor InterleaveRotaryRows(const at::Tensor& rows, int64_t d) {
  return rows.unflatten(0, {-1, 2, d / 2}).transpose(1, 2).flatten(0, 2).contiguous();
}

// Applies InterleaveRotaryRows to rows first to first + count - 1 of every `width` rows.
at::Tensor InterleavePart(const at::Tensor& rows, int64_t width, int64_t first, int64_t count) {
  const at::Tensor heads = rows.unflatten(0, {-1, width});
  const at::Tensor part = heads.narrow(1, first, count);
  return at::cat({heads.narrow(1, 0, first),
                  InterleaveRotaryRows(part.flatten(0, 1), count).view_as(part),
                  heads.narrow(1, first + count, width - first - count)},
                 1)
      .flatten(0, 1);
}

void InterleaveRotary(const ModelConfig& config, int64_t layer, Weights& weights) {
  const std::string attention = AttentionPrefix(layer);
  const auto permute = [&](const std::string& name, int64_t width, int64_t first) {
    for (const char* part : {".weight", ".bias"}) {
      const auto found = weights.find(attention + name + part);
      if (found == weights.end()) continue;
      found->second = InterleavePart(found->second, width, first, config.RotaryDim());
    }
  };
  if (config.attention == AttentionKind::kMla) {
    permute(config.q_lora_rank > 0 ? "q_b_proj" : "q_proj", config.QueryDim(), config.head_dim);
    const int64_t rank = config.kv_lora_rank[layer];
    permute("kv_a_proj_with_mqa", rank + config.qk_rope_head_dim, rank);
  } else {
    for (const char* name : {"q_proj", "k_proj", "q_norm", "k_norm"}) {
      permute(name, config.head_dim, 0);
    }
  }
}

// Contiguous head g * (H/G) + j becomes modular head j * G + g
// (engine/definitions.md#contiguous-grouping).
void PermuteContiguousHeads(const ModelConfig& config, int64_t layer, Weights& weights) {
  const int64_t groups = config.num_key_value_heads;
  const int64_t shared = config.num_attention_heads / groups;
  if (shared == 1) return;
  const std::string attention = AttentionPrefix(layer);
  std::vector<const char*> of_heads = {"q_proj.weight", "q_proj.bias"};
  if (config.qk_norm_all_heads) of_heads.push_back("q_norm.weight");
  for (const char* name : of_heads) {
    const auto found = weights.find(attention + name);
    if (found == weights.end()) continue;
    found->second = found->second.unflatten(0, {groups, shared, config.head_dim})
                        .transpose(0, 1)
                        .flatten(0, 2)
                        .contiguous();
  }
  const auto o = weights.find(attention + "o_proj.weight");
  if (o == weights.end()) return;
  o->second = o->second.unflatten(1, {groups, shared, config.head_dim})
                  .transpose(1, 2)
                  .flatten(1)
                  .contiguous();
}

}  // namespace

void ToEngineOrder(const ModelConfig& stored, int64_t layer, Weights& weights) {
  if (stored.position_embedding == PositionEmbedding::kRope && !stored.rope_interleave) {
    InterleaveRotary(stored, layer, weights);
  }
  if (stored.head_grouping == HeadGrouping::kContiguous) {
    PermuteContiguousHeads(stored, layer, weights);
  }
}

}  // namespace triptych
