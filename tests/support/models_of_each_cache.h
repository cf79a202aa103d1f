// Random models of each way to fill and read a cache.
#ifndef TRIPTYCH_TESTS_SUPPORT_MODELS_OF_EACH_CACHE_H_
#define TRIPTYCH_TESTS_SUPPORT_MODELS_OF_EACH_CACHE_H_

#include <cstdint>
#include <vector>

#include "tests/support/random_model.h"

namespace triptych {

// EachKind(), MLA whose prompts change from reduced to expanded attention at a position
// (BackendOptions::expand_from), the same with normed keys, models some or all of whose layers have
// windows, and one with experts. `window`: of the model whose layers all have one.
inline std::vector<NamedConfig> ModelsOfEachCache(int64_t window) {
  std::vector<NamedConfig> models = EachKind();
  models.push_back({"MlaExpanded", SmallModel(AttentionKind::kMla)});
  models.back().config.kv_lora_rank.assign(models.back().config.num_hidden_layers, 40);
  ModelConfig& normed =
      models.emplace_back(NamedConfig{"MlaNormedKeys", SmallModel(AttentionKind::kMla)}).config;
  normed.qk_norm = true;
  normed.num_key_value_heads = 2;
  normed.position_embedding = PositionEmbedding::kRope;
  normed.qk_rope_head_dim = 4;
  models.push_back({"GqaSomeWindows", SmallModel(AttentionKind::kGqa)});
  models.back().config.sliding_window = 21;
  models.back().config.layer_types = {LayerType::kSliding, LayerType::kFull};
  models.back().config.attn_logit_softcapping = 2;
  models.push_back({"MhaEveryWindow", SmallModel(AttentionKind::kMha)});
  models.back().config.sliding_window = window;
  models.push_back({"MlaExperts", SmallExpertsModel(AttentionKind::kMla)});
  return models;
}

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_SUPPORT_MODELS_OF_EACH_CACHE_H_
