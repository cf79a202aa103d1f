// deepseek_v2 and deepseek_v3 without experts, and minicpm3: multi-head latent attention with
// decoupled rotary keys. Torch-free.
// Sources: arXiv:2405.04434, arXiv:2412.19437, arXiv:2404.06395 and what the published files hold.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_LATENT_FAMILIES_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_LATENT_FAMILIES_H_

#include "engine/checkpoint/config/family.h"

namespace triptych::checkpoint {

// As Family has them.
ModelConfig ParseDeepseekV2Config(JsonFields& fields);
ModelConfig ParseDeepseekV3Config(JsonFields& fields);
ModelConfig ParseMiniCpm3Config(JsonFields& fields);
// Tensors have their names; a tied head that is stored twice and the layers that predict further
// tokens are left out.
TensorMap LatentTensors(const ModelConfig& config, const TensorSource& published);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_LATENT_FAMILIES_H_
