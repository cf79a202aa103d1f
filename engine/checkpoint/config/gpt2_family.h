// The family gpt2: MHA with learned positions, layer norms and GELU; fused, transposed matrices.
// Source: Radford et al. 2019, github.com/openai/gpt-2, and what the published files hold.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_GPT2_FAMILY_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_GPT2_FAMILY_H_

#include "engine/checkpoint/config/family.h"

namespace triptych::checkpoint {

inline constexpr FieldName kGpt2Names[] = {{"hidden_size", "n_embd"},
                                           {"intermediate_size", "n_inner"},
                                           {"max_position_embeddings", "n_positions"},
                                           {"norm_eps", "layer_norm_epsilon"},
                                           {"num_attention_heads", "n_head"},
                                           {"num_hidden_layers", "n_layer"}};

// The functions of Family.
ModelConfig ParseGpt2Config(JsonFields& fields);
TensorMap Gpt2Tensors(const ModelConfig& config, const TensorSource& published);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_GPT2_FAMILY_H_
