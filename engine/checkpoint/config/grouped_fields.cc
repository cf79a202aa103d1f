#include "engine/checkpoint/config/grouped_fields.h"

#include <algorithm>

#include "engine/checkpoint/config/published_fields.h"

namespace triptych::checkpoint {
namespace {

constexpr Range<int64_t> kWindow{2, kNoWindow};

}  // namespace

void RequireFields(const JsonFields& fields, std::initializer_list<const char*> required) {
  for (const char* field : required) {
    if (!fields.Has(field)) fields.RefuseMissing(field);
  }
}

void RequireRopeTheta(const JsonFields& fields) {
  constexpr const char* kField = "rope_theta";
  const Json rotation = fields.left_over().value("rope_parameters", Json());
  if (!fields.Has(kField) && !(rotation.is_object() && rotation.contains(kField))) {
    fields.RefuseMissing(kField);
  }
}

ModelConfig TakeGroupedSizes(JsonFields& fields) {
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
  return config;
}

void TakeRmsNorm(JsonFields& fields, ModelConfig& config) {
  config.norm = NormKind::kRmsNorm;
  config.norm_eps = fields.Number("rms_norm_eps", config_limits::kEpsilon, 1e-6);
}

void TakeLayerNorm(JsonFields& fields, const char* field, bool bias, ModelConfig& config) {
  config.norm = NormKind::kLayerNorm;
  config.norm_eps = fields.Number(field, config_limits::kEpsilon, 1e-5);
  config.norm_bias = bias;
}

void TakeSwiglu(JsonFields& fields, ModelConfig& config) {
  config.mlp = MlpKind::kSwiglu;
  config.hidden_act = HiddenAct::kSilu;
  fields.Only("hidden_act", "silu");
}

void TakeHead(JsonFields& fields, bool tied, ModelConfig& config) {
  config.tie_word_embeddings = fields.Bool("tie_word_embeddings", tied);
  TakeDtype(fields, config);
}

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

int64_t DefaultWindow(const JsonFields& fields) {
  return fields.Has("sliding_window") ? kNoWindow : 4096;
}

void TakeWindow(JsonFields& fields, int64_t default_window, ModelConfig& config) {
  LimitToWindow(fields.Int("sliding_window", kWindow, default_window), fields, config);
}

void TakeUsedWindow(JsonFields& fields, int64_t default_window, bool some, ModelConfig& config) {
  const bool uses = fields.Bool("use_sliding_window", false);
  some = TakeLayerTypes(fields).value_or(some);
  const int64_t window = fields.Int("sliding_window", kWindow, default_window);
  if (uses && some) LimitToWindow(window, fields, config);
}

void TakeLayerWindows(JsonFields& fields, int64_t default_window, ModelConfig& config) {
  const int64_t from = fields.Int("max_window_layers", {0, 1 << 20}, 28);
  TakeUsedWindow(fields, default_window, from < config.num_hidden_layers, config);
}

}  // namespace triptych::checkpoint
