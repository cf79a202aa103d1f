// Fields of mixtures of experts that several published families have in common.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_EXPERT_FIELDS_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_EXPERT_FIELDS_H_

#include <cstdint>
#include <vector>

#include "engine/checkpoint/config/json_fields.h"
#include "engine/model/config.h"

namespace triptych::checkpoint {

// All functions throw LoadError. REQUIRES: the config has its layers.

// The router of a family of DeepSeek's.
enum class DeepseekRouter {
  kSoftmax,  // of DeepSeek-V2: greedy or group_limited_greedy
  kNoauxTc,  // of DeepSeek-V3: sigmoid and noaux_tc
};

// Takes n_routed_experts and, if it is there and some layers have experts, the other fields of
// experts. Otherwise it ignores them.
void TakeDeepseekExperts(JsonFields& fields, DeepseekRouter router, ModelConfig& config);

// Takes num_experts_per_tok and the field of the number of experts, for a router that takes the
// softmax of all logits and chooses the best.
void TakeSoftmaxExperts(JsonFields& fields, const char* count, bool normalized,
                        ModelConfig& config);

// `flags` as sparse_layers: empty if all are 1.
std::vector<int64_t> SparseLayers(std::vector<int64_t> flags);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_EXPERT_FIELDS_H_
