#include "engine/model/conversion_spec.h"

#include <algorithm>
#include <utility>

namespace triptych {

std::string_view Name(ConversionMethod method) {
  switch (method) {
    case ConversionMethod::kWeight:
      return "weight";
    case ConversionMethod::kActivation:
      return "activation";
    case ConversionMethod::kPool:
      return "pool";
  }
  return {};
}

ConversionMethod MethodOf(const ConversionSpec& to, const ModelConfig& from, bool has_text) {
  if (to.method) return *to.method;
  if (to.attention == AttentionKind::kGqa && from.position_embedding == PositionEmbedding::kRope) {
    return ConversionMethod::kPool;
  }
  return has_text ? ConversionMethod::kActivation : ConversionMethod::kWeight;
}

ModelConfig WithGroups(ModelConfig config, AttentionKind attention, int64_t groups) {
  config.attention = attention;
  config.num_key_value_heads = groups;
  config.kv_lora_rank.clear();
  config.qk_rope_head_dim = 0;
  config.v_head_dim = 0;
  config.kv_a_layernorm = false;
  config.q_lora_rank = 0;
  config.latent_bias = false;
  config.latent_norm_eps.reset();
  return config;
}

ModelConfig WithLatents(ModelConfig config, std::vector<int64_t> ranks) {
  config.attention = AttentionKind::kMla;
  if (!config.qk_norm) config.num_key_value_heads = config.num_attention_heads;
  config.kv_lora_rank = std::move(ranks);
  if (config.sliding_window > 0) {
    config.max_position_embeddings =
        std::min(config.max_position_embeddings, config.sliding_window);
    config.sliding_window = 0;
    config.layer_types.clear();
  }
  return config;
}

}  // namespace triptych
