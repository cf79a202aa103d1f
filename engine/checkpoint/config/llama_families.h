// llama, mistral, qwen2 and qwen3: grouped attention with rotary positions, RMS norms and SwiGLU.
// Torch-free.
// Sources: arXiv:2302.13971, arXiv:2310.06825, arXiv:2407.10671, arXiv:2505.09388 and what the
// published files hold.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_LLAMA_FAMILIES_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_LLAMA_FAMILIES_H_

#include "engine/checkpoint/config/family.h"

namespace triptych::checkpoint {

// As Family has them. A window is served up to its length.
ModelConfig ParseLlamaConfig(JsonFields& fields);
ModelConfig ParseMistralConfig(JsonFields& fields);
ModelConfig ParseQwen2Config(JsonFields& fields);
ModelConfig ParseQwen3Config(JsonFields& fields);
// Tensors have their names; a tied head that is stored twice and tables of frequencies are left
// out.
TensorMap LlamaTensors(const ModelConfig& config, const TensorSource& published);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_LLAMA_FAMILIES_H_
