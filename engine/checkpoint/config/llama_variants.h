// The families gemma, gemma2, gemma3_text, granite, olmo2, phi3 and smollm3: Llama's blocks with
// other constants, norms, rotations and names. Sources: arXiv:2403.08295, arXiv:2408.00118,
// arXiv:2503.19786, arXiv:2408.13359, arXiv:2501.00656, arXiv:2404.14219, the published files, and
// the modelling code that the publishers name in their config.json.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_LLAMA_VARIANTS_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_LLAMA_VARIANTS_H_

#include "engine/checkpoint/config/family.h"

namespace triptych::checkpoint {

inline constexpr FieldName kGraniteNames[] = {
    {"attention_score_factor", "attention_multiplier * sqrt(head_dim)"},
    {"embedding_multiplier", "embedding_multiplier / residual_multiplier"},
    {"logit_multiplier", "1 / logits_scaling"},
    {"norm_eps", "rms_norm_eps / residual_multiplier^2"},
    {"rope_attention_factor", "rope_attention_factor (from rope_scaling)"},
    {"rope_factors", "rope_factors (from rope_scaling)"}};

inline constexpr FieldName kGemma2Names[] = {
    {"attention_score_factor", "sqrt(head_dim / query_pre_attn_scalar)"},
    {"norm_eps", "rms_norm_eps"},
    {"rope_attention_factor", "rope_attention_factor (from rope_scaling)"},
    {"rope_factors", "rope_factors (from rope_scaling)"}};

// The functions of Family.
ModelConfig ParseGemmaConfig(JsonFields& fields);
ModelConfig ParseGemma2Config(JsonFields& fields);
ModelConfig ParseGemma3TextConfig(JsonFields& fields);
ModelConfig ParseGraniteConfig(JsonFields& fields);
ModelConfig ParseOlmo2Config(JsonFields& fields);
ModelConfig ParsePhi3Config(JsonFields& fields);
ModelConfig ParseSmolLm3Config(JsonFields& fields);
// Weights of norms are stored less 1.
TensorMap GemmaTensors(const ModelConfig& config, const TensorSource& published);
// The same for gemma2 and gemma3_text, whose norms precede and follow attention and the MLP.
TensorMap Gemma2Tensors(const ModelConfig& config, const TensorSource& published);
// Norms follow attention and the MLP.
TensorMap Olmo2Tensors(const ModelConfig& config, const TensorSource& published);
// One matrix holds q, k and v, another gate and up.
TensorMap Phi3Tensors(const ModelConfig& config, const TensorSource& published);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_LLAMA_VARIANTS_H_
