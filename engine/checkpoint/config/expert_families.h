// The families of llama's kind with experts: granitemoe, mixtral, olmoe, qwen2_moe and qwen3_moe.
// Sources: arXiv:2401.04088, arXiv:2409.02060, the modelling code that the publishers name in their
// config.json, and what the published files hold.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_EXPERT_FAMILIES_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_EXPERT_FAMILIES_H_

#include "engine/checkpoint/config/family.h"

namespace triptych::checkpoint {

inline constexpr FieldName kGraniteMoeNames[] = {
    {"attention_score_factor", "attention_multiplier * sqrt(head_dim)"},
    {"embedding_multiplier", "embedding_multiplier / residual_multiplier"},
    {"logit_multiplier", "1 / logits_scaling"},
    {"moe_intermediate_size", "intermediate_size"},
    {"n_routed_experts", "num_local_experts"},
    {"norm_eps", "rms_norm_eps / residual_multiplier^2"},
    {"rope_attention_factor", "rope_attention_factor (from rope_scaling)"},
    {"rope_factors", "rope_factors (from rope_scaling)"}};
inline constexpr FieldName kMixtralNames[] = {
    {"moe_intermediate_size", "intermediate_size"},
    {"n_routed_experts", "num_local_experts"},
    {"norm_eps", "rms_norm_eps"},
    {"rope_attention_factor", "rope_attention_factor (from rope_scaling)"},
    {"rope_factors", "rope_factors (from rope_scaling)"}};
inline constexpr FieldName kOlmoeNames[] = {
    {"moe_intermediate_size", "intermediate_size"},
    {"n_routed_experts", "num_experts"},
    {"norm_eps", "rms_norm_eps"},
    {"rope_attention_factor", "rope_attention_factor (from rope_scaling)"},
    {"rope_factors", "rope_factors (from rope_scaling)"}};
inline constexpr FieldName kQwenMoeNames[] = {
    {"n_routed_experts", "num_experts"},
    {"norm_eps", "rms_norm_eps"},
    {"rope_attention_factor", "rope_attention_factor (from rope_scaling)"},
    {"rope_factors", "rope_factors (from rope_scaling)"},
    {"sparse_layers", "sparse_layers (from decoder_sparse_step and mlp_only_layers)"}};

// The functions of Family.
ModelConfig ParseGraniteMoeConfig(JsonFields& fields);
ModelConfig ParseMixtralConfig(JsonFields& fields);
ModelConfig ParseOlmoeConfig(JsonFields& fields);
ModelConfig ParseQwen2MoeConfig(JsonFields& fields);
ModelConfig ParseQwen3MoeConfig(JsonFields& fields);
// A layer's experts are matrices of two tensors, of which one has gate and up.
TensorMap GraniteMoeTensors(const ModelConfig& config, const TensorSource& published);
TensorMap MixtralTensors(const ModelConfig& config, const TensorSource& published);
TensorMap Qwen2MoeTensors(const ModelConfig& config, const TensorSource& published);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_EXPERT_FAMILIES_H_
