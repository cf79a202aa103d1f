// Rotary positions as published configs describe them. Torch-free.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_ROPE_SCALING_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_ROPE_SCALING_H_

#include "engine/checkpoint/config/json_fields.h"
#include "engine/model/config.h"

namespace triptych::checkpoint {

// rope_theta and rope_scaling, or rope_parameters, which is both: takes them into the config, whose
// other sizes are known, all but the scores' factor. Nothing, linear, dynamic (which changes
// nothing up to max_position_embeddings), llama3, yarn (Peng et al. 2023, arXiv:2309.00071) and
// longrope (Ding et al. 2024, arXiv:2402.13753) are known. Throws LoadError.
void TakeRope(JsonFields& fields, ModelConfig& config);

// The same of models with latent attention, whose scores YaRN's mscale_all_dim multiplies, too.
void TakeLatentRope(JsonFields& fields, ModelConfig& config);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_ROPE_SCALING_H_
