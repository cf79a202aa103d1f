// What the configs of several published families have in common. Torch-free.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_PUBLISHED_FIELDS_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_PUBLISHED_FIELDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/checkpoint/config/json_fields.h"
#include "engine/model/config.h"

namespace triptych::checkpoint {

// All functions throw LoadError.

// Drops what a config says of everything but the computation: who made it, token ids, dropout,
// training, generation. Fields that are null are as good as absent from then on.
void IgnoreWhatChangesNothing(JsonFields& fields);

// vocab_size, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads,
// max_position_embeddings, all required.
void TakeSizes(JsonFields& fields, ModelConfig& config);

// The most elements that one dimension of a model may have, and the most that a factor and
// rope_theta may be.
inline constexpr int64_t kMaxWidth = 1 << 20;
inline constexpr double kMaxFactor = 1e6;
inline constexpr double kMaxRopeTheta = 1e12;

// head_dim, or hidden_size over num_attention_heads, which must divide it then.
void TakeHeadDim(JsonFields& fields, ModelConfig& config);

// torch_dtype or dtype: what the weights are served in unless a server is told otherwise; float16
// is served in bfloat16. float32 where neither is said.
void TakeDtype(JsonFields& fields, ModelConfig& config);

// Where a window ends what a token attends, positions beyond it are not served: up to it a window
// changes nothing.
void LimitToWindow(int64_t window, ModelConfig& config);

// A list of factors of rotary angles, one for each pair that is rotated.
std::vector<double> TakeRopeFactors(JsonFields& fields, const char* field,
                                    const ModelConfig& config);

// What files hold beside a model's tensors: tables of frequencies, and a tied head stored twice.
std::vector<std::string> TensorsBeside(const ModelConfig& config);

// Refuses more rotated or sinusoidal positions than tables are made for, which no file holds: what
// they take grows with two numbers that anybody can write.
void CheckPositionTables(const JsonFields& fields, const ModelConfig& config);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_PUBLISHED_FIELDS_H_
