#include "engine/checkpoint/config/llama_families.h"

#include <algorithm>
#include <optional>
#include <string>

#include "engine/checkpoint/config/published_fields.h"
#include "engine/checkpoint/config/rope_scaling.h"
#include "engine/model/validate_config.h"

namespace triptych::checkpoint {
namespace {

constexpr int64_t kMaxWindow = config_limits::kPositions.high;

// Every field except biases, windows and norms of queries and keys.
ModelConfig TakeLlamaCommon(JsonFields& fields) {
  IgnoreWhatChangesNothing(fields);
  ModelConfig config;
  TakeSizes(fields, config);
  TakeHeadDim(fields, config);
  const int64_t heads = config.num_attention_heads;
  config.num_key_value_heads = fields.Int("num_key_value_heads", config_limits::kWidth, heads);
  config.attention =
      config.num_key_value_heads == heads ? AttentionKind::kMha : AttentionKind::kGqa;
  config.head_grouping = HeadGrouping::kContiguous;
  config.position_embedding = PositionEmbedding::kRope;
  config.rope_interleave = false;
  TakeRope(fields, config);
  config.norm = NormKind::kRmsNorm;
  config.norm_eps = fields.Number("rms_norm_eps", config_limits::kEpsilon, 1e-6);
  config.mlp = MlpKind::kSwiglu;
  config.hidden_act = HiddenAct::kSilu;
  fields.Only("hidden_act", "silu");
  config.tie_word_embeddings = fields.Bool("tie_word_embeddings", false);
  TakeDtype(fields, config);
  return config;
}

// Refuses an absent num_key_value_heads, whose default is not num_attention_heads.
void RequireGroups(const JsonFields& fields) {
  if (!fields.Has("num_key_value_heads")) fields.RefuseMissing("num_key_value_heads");
}

// Whether layer_types gives some layer a window; none if it is absent or empty.
std::optional<bool> TakeLayerTypes(JsonFields& fields) {
  const Json types = fields.Take("layer_types", Json::array());
  const auto is_known = [](const Json& type) {
    return type == "full_attention" || type == "sliding_attention";
  };
  if (!types.is_array() || !std::all_of(types.begin(), types.end(), is_known)) {
    fields.RefuseValue("layer_types", types,
                       "supported: a list of \"full_attention\" and \"sliding_attention\"");
  }
  if (types.empty()) return std::nullopt;
  return std::find(types.begin(), types.end(), "sliding_attention") != types.end();
}

// The window of a family that has one unless sliding_window is null. Call before nulls are dropped.
int64_t DefaultWindow(const JsonFields& fields) {
  return fields.Has("sliding_window") ? kMaxWindow : 4096;
}

// With use_sliding_window, the layers of Qwen's models that layer_types names have a window;
// without layer_types, those from max_window_layers on.
void TakeLayerWindows(JsonFields& fields, int64_t default_window, ModelConfig& config) {
  const bool uses = fields.Bool("use_sliding_window", false);
  const std::optional<bool> some = TakeLayerTypes(fields);
  const int64_t window = fields.Int("sliding_window", {2, kMaxWindow}, default_window);
  const int64_t from = fields.Int("max_window_layers", {0, 1 << 20}, 28);
  if (uses && some.value_or(from < config.num_hidden_layers)) LimitToWindow(window, fields, config);
}

}  // namespace

ModelConfig ParseLlamaConfig(JsonFields& fields) {
  ModelConfig config = TakeLlamaCommon(fields);
  config.attention_bias = fields.Bool("attention_bias", false);
  config.mlp_bias = fields.Bool("mlp_bias", false);
  // transformers' Llama does not read them.
  for (const char* field : {"max_sequence_length", "rope_interleaved", "sliding_window"}) {
    fields.Ignore(field);
  }
  return config;
}

ModelConfig ParseMistralConfig(JsonFields& fields) {
  RequireGroups(fields);
  const int64_t default_window = DefaultWindow(fields);
  ModelConfig config = TakeLlamaCommon(fields);
  for (const char* field : {"attention_bias", "mlp_bias"}) fields.Ignore(field);  // no biases ever
  TakeLayerTypes(fields);
  LimitToWindow(fields.Int("sliding_window", {2, kMaxWindow}, default_window), fields, config);
  return config;
}

ModelConfig ParseQwen2Config(JsonFields& fields) {
  RequireGroups(fields);
  const int64_t default_window = DefaultWindow(fields);
  ModelConfig config = TakeLlamaCommon(fields);
  config.attention_bias = true;
  config.attention_output_bias = false;
  fields.Only("use_mrope", false);
  for (const char* field : {"attention_bias", "mlp_bias"}) fields.Ignore(field);  // always as above
  TakeLayerWindows(fields, default_window, config);
  return config;
}

ModelConfig ParseQwen3Config(JsonFields& fields) {
  RequireGroups(fields);
  if (!fields.Has("head_dim")) fields.RefuseMissing("head_dim");
  const int64_t default_window = DefaultWindow(fields);
  ModelConfig config = TakeLlamaCommon(fields);
  config.qk_norm = true;
  config.attention_bias = fields.Bool("attention_bias", false);
  fields.Ignore("mlp_bias");  // never any
  TakeLayerWindows(fields, default_window, config);
  return config;
}

TensorMap LlamaTensors(const ModelConfig& config, const TensorSource&) {
  return {.origins = {}, .left_out = TensorsBeside(config)};
}

}  // namespace triptych::checkpoint
