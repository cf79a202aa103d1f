#include "engine/decoder/decoder.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "engine/attention/grouped_attention.h"
#include "engine/attention/latent_attention.h"
#include "engine/decoder/layer_weights.h"
#include "engine/model/validate_config.h"

namespace triptych {

Decoder::Decoder(const ModelConfig& config, const Weights& weights, ComputeType compute,
                 CacheFormat cache)
    : frame_(config, weights, compute), cache_(cache) {
  ModelConfig bounded = config;  // no text here is as long as the longest contexts
  if (config.RotaryDim() > 0) {
    bounded.max_position_embeddings = std::min(config.max_position_embeddings,
                                               config_limits::kPositionTable / config.RotaryDim());
  }
  const LayerRotary rotary = MakeRotary(bounded, frame_.device());
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (config.attention == AttentionKind::kMla) {
      attention_.push_back(std::make_unique<LatentAttention>(
          LatentShapeOf(config, layer), FindLatent(weights, layer), rotary.shared));
    } else {
      attention_.push_back(std::make_unique<GroupedAttention>(
          config.num_attention_heads, config.num_key_value_heads, FindGrouped(weights, layer),
          GroupedOptionsOf(config, layer, rotary)));
    }
  }
}

at::Tensor Decoder::Forward(const at::Tensor& ids, Dropout* dropout) const {
  const auto attend = [&](int64_t layer, const at::Tensor& normal) {
    return attention_[layer]->Dense(normal, normal, /*causal=*/true, cache_, dropout);
  };
  const auto drop = [&](const at::Tensor& x) { return dropout != nullptr ? dropout->Apply(x) : x; };
  const auto add = [&](const at::Tensor& x, const at::Tensor& branch) { return x + drop(branch); };
  const at::Tensor start = drop(frame_.Embed(ids, at::arange(ids.size(1), ids.options())));
  return frame_.Logits(frame_.Hidden(start, attend, add));
}

}  // namespace triptych
