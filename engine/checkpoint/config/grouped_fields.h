// Fields that published families with rotary positions have in common.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_GROUPED_FIELDS_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_GROUPED_FIELDS_H_

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "engine/checkpoint/config/json_fields.h"
#include "engine/model/config.h"
#include "engine/model/validate_config.h"

namespace triptych::checkpoint {

// All functions throw LoadError.

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

// Takes layer_types: empty, or one for each layer. REQUIRES: the config has num_hidden_layers.
std::vector<LayerType> TakeLayerTypes(JsonFields& fields, const ModelConfig& config);

// The types of layers of which every `pattern`-th is full and the others slide.
std::vector<LayerType> SlidingExceptEvery(int64_t pattern, const ModelConfig& config);

// The value of a field that is `absent` unless it is there: 0 for null. Call before nulls are
// dropped.
double DefaultOf(const JsonFields& fields, const char* field, double absent);

// Takes sliding_window, by default `default_window`; 0: there is none.
int64_t TakeWindow(JsonFields& fields, int64_t default_window);

// Gives the layers that slide a window; none if the window is 0 or no layer slides. `types`: empty
// if all slide.
void SetWindow(int64_t window, std::vector<LayerType> types, ModelConfig& config);

// With use_sliding_window, takes the windows of the layers that slide by layer_types, or by `types`
// without it.
void TakeUsedWindow(JsonFields& fields, int64_t default_window, std::vector<LayerType> types,
                    ModelConfig& config);

// The same for Qwen's models: without layer_types, the layers from max_window_layers on slide.
void TakeLayerWindows(JsonFields& fields, int64_t default_window, ModelConfig& config);

// Takes a soft-cap, by default `default_cap`; 0: there is none.
double TakeSoftcap(JsonFields& fields, const char* field, double default_cap);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_GROUPED_FIELDS_H_
