// The families llama, mistral, qwen2 and qwen3: grouped attention with rotary positions, RMS norms
// and SwiGLU.
// Sources: arXiv:2302.13971, arXiv:2310.06825, arXiv:2407.10671, arXiv:2505.09388 and what the
// published files hold.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_LLAMA_FAMILIES_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_LLAMA_FAMILIES_H_

#include "engine/checkpoint/config/family.h"

namespace triptych::checkpoint {

inline constexpr FieldName kLlamaNames[] = {
    {"norm_eps", "rms_norm_eps"},
    {"rope_attention_factor", "rope_attention_factor (from rope_scaling)"},
    {"rope_factors", "rope_factors (from rope_scaling)"}};

// The functions of Family.
ModelConfig ParseLlamaConfig(JsonFields& fields);
ModelConfig ParseMistralConfig(JsonFields& fields);
ModelConfig ParseQwen2Config(JsonFields& fields);
ModelConfig ParseQwen3Config(JsonFields& fields);
// Tensors have the engine's names. The second copy of a tied head and tables of frequencies are
// left out.
TensorMap LlamaTensors(const ModelConfig& config, const TensorSource& published);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_LLAMA_FAMILIES_H_
