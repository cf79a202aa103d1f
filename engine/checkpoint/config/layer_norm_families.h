// The families cohere, stablelm and starcoder2: grouped attention with rotary positions and layer
// norms.
// Sources: arXiv:2402.17834, arXiv:2402.19173, the published files, and the modelling code that the
// publishers name in their config.json.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_LAYER_NORM_FAMILIES_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_LAYER_NORM_FAMILIES_H_

#include "engine/checkpoint/config/family.h"

namespace triptych::checkpoint {

inline constexpr FieldName kCohereNames[] = {
    {"logit_multiplier", "logit_scale"},
    {"norm_eps", "layer_norm_eps"},
    {"rope_attention_factor", "rope_attention_factor (from rope_scaling)"},
    {"rope_factors", "rope_factors (from rope_scaling)"}};
inline constexpr FieldName kStableLmNames[] = {
    {"norm_eps", "layer_norm_eps"},
    {"rope_attention_factor", "rope_attention_factor (from rope_scaling)"},
    {"rope_factors", "rope_factors (from rope_scaling)"}};
inline constexpr FieldName kStarcoder2Names[] = {
    {"norm_eps", "norm_epsilon"},
    {"rope_attention_factor", "rope_attention_factor (from rope_scaling)"},
    {"rope_factors", "rope_factors (from rope_scaling)"}};

// The functions of Family.
ModelConfig ParseCohereConfig(JsonFields& fields);
ModelConfig ParseStableLmConfig(JsonFields& fields);
ModelConfig ParseStarcoder2Config(JsonFields& fields);
// The MLP's matrices are c_fc and c_proj.
TensorMap Starcoder2Tensors(const ModelConfig& config, const TensorSource& published);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_LAYER_NORM_FAMILIES_H_
