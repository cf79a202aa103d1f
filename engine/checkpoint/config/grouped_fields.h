// Fields that published families of grouped attention with rotary positions have in common.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_GROUPED_FIELDS_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_GROUPED_FIELDS_H_

#include <cstdint>
#include <initializer_list>
#include <optional>

#include "engine/checkpoint/config/json_fields.h"
#include "engine/model/config.h"
#include "engine/model/validate_config.h"

namespace triptych::checkpoint {

// All functions throw LoadError.

inline constexpr int64_t kNoWindow = config_limits::kPositions.high;

// Refuses a config without these fields, whose defaults differ between a family's publishers.
void RequireFields(const JsonFields& fields, std::initializer_list<const char*> required);

// Refuses a config without rope_theta. Call after nulls are dropped.
void RequireRopeTheta(const JsonFields& fields);

// Drops the fields that change nothing; takes the sizes, the heads and their groups, which are
// contiguous. Rotary pairs are (i, i + d/2).
ModelConfig TakeGroupedSizes(JsonFields& fields);

// Takes rms_norm_eps, by default 1e-6.
void TakeRmsNorm(JsonFields& fields, ModelConfig& config);

// Takes the epsilon `field` of layer norms, by default 1e-5.
void TakeLayerNorm(JsonFields& fields, const char* field, bool bias, ModelConfig& config);

// Takes hidden_act, which must be "silu".
void TakeSwiglu(JsonFields& fields, ModelConfig& config);

// Takes tie_word_embeddings, by default `tied`, and the dtype.
void TakeHead(JsonFields& fields, bool tied, ModelConfig& config);

// Takes layer_types. Whether it gives some layer a window; none if it is absent or empty.
std::optional<bool> TakeLayerTypes(JsonFields& fields);

// The window of a family that has one unless sliding_window is null. Call before nulls are dropped.
int64_t DefaultWindow(const JsonFields& fields);

// Takes sliding_window, the window of all layers, and limits the context to it.
void TakeWindow(JsonFields& fields, int64_t default_window, ModelConfig& config);

// With use_sliding_window, some layers have a window: those that layer_types names. Without
// layer_types, `some` says whether there are any.
void TakeUsedWindow(JsonFields& fields, int64_t default_window, bool some, ModelConfig& config);

// The same for Qwen's models: without layer_types, the layers from max_window_layers on have it.
void TakeLayerWindows(JsonFields& fields, int64_t default_window, ModelConfig& config);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_GROUPED_FIELDS_H_
