#include "engine/checkpoint/config/grouped_fields.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/base/names.h"
#include "engine/checkpoint/config/published_fields.h"

namespace triptych::checkpoint {

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

std::vector<LayerType> TakeLayerTypes(JsonFields& fields, const ModelConfig& config) {
  constexpr const char* kField = "layer_types";
  if (!fields.Has(kField)) return {};
  const Json given = fields.List(kField);
  std::vector<LayerType> types;
  for (const Json& name : given) {
    const auto& known = Names<LayerType>();
    const auto found = name.is_string() ? known.find(name.get<std::string>()) : known.end();
    if (found == known.end()) {
      fields.RefuseUnsupported(kField, given,
                               "a list of \"full_attention\" and \"sliding_attention\"");
    }
    types.push_back(found->second);
  }
  if (!types.empty() && std::ssize(types) != config.num_hidden_layers) {
    fields.RefuseValue(kField, given,
                       "allowed: a list of " + fields.NameOf("num_hidden_layers") + " = " +
                           std::to_string(config.num_hidden_layers));
  }
  return types;
}

std::vector<LayerType> SlidingExceptEvery(int64_t pattern, const ModelConfig& config) {
  std::vector<LayerType> types;
  for (int64_t layer = 1; layer <= config.num_hidden_layers; ++layer) {
    types.push_back(layer % pattern == 0 ? LayerType::kFull : LayerType::kSliding);
  }
  return types;
}

double DefaultOf(const JsonFields& fields, const char* field, double absent) {
  return fields.Has(field) ? 0 : absent;
}

int64_t TakeWindow(JsonFields& fields, int64_t default_window) {
  if (!fields.Has("sliding_window")) return default_window;
  return fields.Int("sliding_window", {1, config_limits::kOptionalWindow.high});
}

void SetWindow(int64_t window, std::vector<LayerType> types, ModelConfig& config) {
  const auto slides = [](LayerType type) { return type == LayerType::kSliding; };
  if (window == 0) return;
  if (!types.empty() && std::none_of(types.begin(), types.end(), slides)) return;
  config.sliding_window = window;
  if (std::all_of(types.begin(), types.end(), slides)) types.clear();
  config.layer_types = std::move(types);
}

void TakeUsedWindow(JsonFields& fields, int64_t default_window, std::vector<LayerType> types,
                    ModelConfig& config) {
  const bool uses = fields.Bool("use_sliding_window", false);
  if (std::vector<LayerType> named = TakeLayerTypes(fields, config); !named.empty()) {
    types = std::move(named);
  }
  const int64_t window = TakeWindow(fields, default_window);
  if (uses) SetWindow(window, std::move(types), config);
}

void TakeLayerWindows(JsonFields& fields, int64_t default_window, ModelConfig& config) {
  const int64_t from = fields.Int("max_window_layers", {0, 1 << 20}, 28);
  std::vector<LayerType> types;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    types.push_back(layer < from ? LayerType::kFull : LayerType::kSliding);
  }
  TakeUsedWindow(fields, default_window, std::move(types), config);
}

double TakeSoftcap(JsonFields& fields, const char* field, double default_cap) {
  return fields.Has(field) ? fields.Number(field, config_limits::kFactor) : default_cap;
}

}  // namespace triptych::checkpoint
