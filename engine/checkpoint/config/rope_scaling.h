// Rotary positions in published configs.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_ROPE_SCALING_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_ROPE_SCALING_H_

#include "engine/checkpoint/config/json_fields.h"
#include "engine/model/config.h"

namespace triptych::checkpoint {

// Takes rope_theta and rope_scaling, or rope_parameters, which holds both, into the config, except
// for the factor of scores. Known types: none, linear, dynamic (which changes nothing up to
// max_position_embeddings), llama3, yarn (Peng et al. 2023, arXiv:2309.00071) and longrope (Ding et
// al. 2024, arXiv:2402.13753). linear and yarn extend the context to `factor` times the original
// one, unless max_position_embeddings is that long already. longrope limits it to the original one
// if its tables differ. Throws LoadError. REQUIRES: the config has its sizes.
void TakeRope(JsonFields& fields, ModelConfig& config);

// The same for a family that rotates the first part of each head: takes partial_rotary_factor, too,
// by default `share`. REQUIRES: the config has head_dim.
void TakePartialRope(JsonFields& fields, double share, ModelConfig& config);

// The same for a family whose layers with a window turn by a theta of their own, which is the
// result. It is rope_local_base_freq, by default 10000, or in rope_parameters that has an object
// for each kind of layers. Theta of the others has no default.
double TakeSplitRope(JsonFields& fields, ModelConfig& config);

// The same for latent attention. YaRN's mscale_all_dim also multiplies the scores.
void TakeLatentRope(JsonFields& fields, ModelConfig& config);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_ROPE_SCALING_H_
