// Fields that several published families have in common.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_PUBLISHED_FIELDS_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_PUBLISHED_FIELDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/checkpoint/config/family.h"
#include "engine/checkpoint/config/json_fields.h"
#include "engine/model/config.h"

namespace triptych::checkpoint {

// All functions throw LoadError.

// Drops the fields that do not change the computation: authorship, token ids, dropout, training,
// generation. Drops null fields too.
void IgnoreWhatChangesNothing(JsonFields& fields);

// Takes vocab_size, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads and
// max_position_embeddings, all required.
void TakeSizes(JsonFields& fields, ModelConfig& config);

// Takes head_dim. Without it head_dim is hidden_size / num_attention_heads, which must be whole.
void TakeHeadDim(JsonFields& fields, ModelConfig& config);

// Takes torch_dtype or dtype, the weights' default format; float16 becomes bfloat16. float32 if
// both are absent.
void TakeDtype(JsonFields& fields, ModelConfig& config);

// Names of tensors that files hold besides a model's own: tables of frequencies, and the second
// copy of a tied head.
std::vector<std::string> TensorsBeside(const ModelConfig& config);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_PUBLISHED_FIELDS_H_
