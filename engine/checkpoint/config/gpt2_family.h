// gpt2: multi-head attention with learned positions, layer norms and GELU; fused, transposed
// matrices. Torch-free.
// Source: Radford et al. 2019, github.com/openai/gpt-2, and what the published files hold.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_GPT2_FAMILY_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_GPT2_FAMILY_H_

#include "engine/checkpoint/config/family.h"

namespace triptych::checkpoint {

// As Family has them.
ModelConfig ParseGpt2Config(JsonFields& fields);
TensorMap Gpt2Tensors(const ModelConfig& config, const TensorSource& published);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_GPT2_FAMILY_H_
