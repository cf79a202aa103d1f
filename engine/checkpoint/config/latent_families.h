// The families deepseek_v2, deepseek_v3 (also kimi_k2 and glm4_moe_lite), youtu, plm and minicpm3:
// multi-head latent attention with decoupled rotary keys.
// Sources: arXiv:2405.04434, arXiv:2412.19437, arXiv:2404.06395, arXiv:2503.12167 and what the
// published files hold.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_LATENT_FAMILIES_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_LATENT_FAMILIES_H_

#include "engine/checkpoint/config/family.h"

namespace triptych::checkpoint {

inline constexpr FieldName kDeepseekNames[] = {
    {"attention_score_factor", "attention_score_factor (from rope_scaling)"},
    {"head_dim", "qk_nope_head_dim"},
    {"latent_bias", "attention_bias"},
    {"norm_eps", "rms_norm_eps"},
    {"rope_attention_factor", "rope_attention_factor (from rope_scaling)"},
    {"rope_factors", "rope_factors (from rope_scaling)"},
    {"shared_expert_intermediate_size", "n_shared_experts * moe_intermediate_size"},
    {"sparse_layers", "sparse_layers (from mlp_layer_types, or first_k_dense_replace)"}};
inline constexpr FieldName kMiniCpm3Names[] = {
    {"attention_score_factor", "attention_score_factor (from rope_scaling)"},
    {"embedding_multiplier", "scale_emb * sqrt(num_hidden_layers) / scale_depth"},
    {"head_dim", "qk_nope_head_dim"},
    {"latent_bias", "attention_bias"},
    {"logit_multiplier", "dim_model_base / hidden_size"},
    {"norm_eps", "rms_norm_eps * num_hidden_layers / scale_depth^2"},
    {"rope_attention_factor", "rope_attention_factor (from rope_scaling)"},
    {"rope_factors", "rope_factors (from rope_scaling)"},
    {"v_head_dim", "hidden_size / num_attention_heads"}};

// The epsilon of both latents' norms in every family of this file. rms_norm_eps is for the others.
inline constexpr double kDeepseekLatentNormEps = 1e-6;

// The functions of Family.
ModelConfig ParseDeepseekV2Config(JsonFields& fields);
ModelConfig ParseDeepseekV3Config(JsonFields& fields);
ModelConfig ParseMiniCpm3Config(JsonFields& fields);
ModelConfig ParsePlmConfig(JsonFields& fields);
ModelConfig ParseYoutuConfig(JsonFields& fields);
// Tensors have the engine's names. The second copy of a tied head and the layers that predict
// further tokens are left out.
TensorMap LatentTensors(const ModelConfig& config, const TensorSource& published);

// The fields of a config.json of model_type "deepseek_v3", without experts, that
// ParseDeepseekV3Config turns into this config. REQUIRES: a config in that form
// (engine/decoder/deepseek_form.h).
OrderedJson DeepseekV3Fields(const ModelConfig& config);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_LATENT_FAMILIES_H_
