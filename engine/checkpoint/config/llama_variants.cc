#include "engine/checkpoint/config/llama_variants.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/bfloat16.h"
#include "engine/checkpoint/config/grouped_fields.h"
#include "engine/checkpoint/config/published_fields.h"
#include "engine/checkpoint/config/rope_scaling.h"
#include "engine/model/tensor_names.h"
#include "engine/model/validate_config.h"

namespace triptych::checkpoint {
namespace {

constexpr Range<double> kMultiplier{1e-3, config_limits::kFactor.high};  // a divisor
constexpr Range<int64_t> kInterval{1, 1 << 20};

// The config's norms in Triptych's names, without ".weight".
std::vector<std::string> NormNames(const ModelConfig& config) {
  std::vector<std::string> names{"model.norm"};
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) {
      names.push_back(LayerPrefix(layer) + norm);
    }
  }
  return names;
}

// The fields of all of Gemma's models except rotation. They multiply embeddings by
// sqrt(hidden_size), as a number of the weights' dtype.
ModelConfig TakeGemmaCommon(JsonFields& fields) {
  RequireFields(fields, {"num_key_value_heads", "head_dim"});
  ModelConfig config = TakeGroupedSizes(fields);
  TakeRmsNorm(fields, config);
  config.mlp = MlpKind::kGeglu;
  config.hidden_act = HiddenAct::kGelu;
  // The first configs say "gelu" in hidden_act; the publisher's code computes the approximation.
  const Json activation = fields.Take("hidden_act", "gelu_pytorch_tanh");
  if (activation != "gelu" && activation != "gelu_pytorch_tanh") {
    fields.RefuseUnsupported("hidden_act", activation, "\"gelu_pytorch_tanh\", \"gelu\"");
  }
  fields.Only("hidden_activation", "gelu_pytorch_tanh");
  fields.Only("use_bidirectional_attention", false);
  config.attention_bias = fields.Bool("attention_bias", false);
  TakeHead(fields, /*tied=*/true, config);
  const double scale = std::sqrt(static_cast<double>(config.hidden_size));
  config.embedding_multiplier = config.torch_dtype == TensorFormat::kBFloat16
                                    ? FromBFloat16(ToBFloat16(static_cast<float>(scale)))
                                    : scale;
  return config;
}

// The fields that Gemma 2 has besides Gemma's.
void TakeGemma2Attention(JsonFields& fields, double attention_cap, double logit_cap,
                         ModelConfig& config) {
  config.norm_outputs = true;
  const double scaled = fields.Number("query_pre_attn_scalar", config_limits::kFactor, 256.0);
  config.attention_score_factor = std::sqrt(static_cast<double>(config.head_dim) / scaled);
  config.attn_logit_softcapping = TakeSoftcap(fields, "attn_logit_softcapping", attention_cap);
  config.final_logit_softcapping = TakeSoftcap(fields, "final_logit_softcapping", logit_cap);
  fields.Ignore("cache_implementation");
  fields.Ignore("sliding_window_size");  // an older name, next to sliding_window
}

// The names of Gemma 2's norms in Triptych and in its files, after a layer's prefix.
constexpr std::pair<const char*, const char*> kGemma2Norms[] = {
    {"input_layernorm", "input_layernorm"},
    {"post_self_attn_layernorm", "post_attention_layernorm"},
    {"post_attention_layernorm", "pre_feedforward_layernorm"},
    {"post_mlp_layernorm", "post_feedforward_layernorm"}};

}  // namespace

ModelConfig ParseGemmaConfig(JsonFields& fields) {
  ModelConfig config = TakeGemmaCommon(fields);
  TakeRope(fields, config);
  return config;
}

ModelConfig ParseGemma2Config(JsonFields& fields) {
  const double attention_cap = DefaultOf(fields, "attn_logit_softcapping", 50);
  const double logit_cap = DefaultOf(fields, "final_logit_softcapping", 30);
  const auto default_window = static_cast<int64_t>(DefaultOf(fields, "sliding_window", 4096));
  ModelConfig config = TakeGemmaCommon(fields);
  TakeRope(fields, config);
  TakeGemma2Attention(fields, attention_cap, logit_cap, config);
  std::vector<LayerType> types = TakeLayerTypes(fields, config);
  if (types.empty()) types = SlidingExceptEvery(2, config);
  SetWindow(TakeWindow(fields, default_window), std::move(types), config);
  return config;
}

ModelConfig ParseGemma3TextConfig(JsonFields& fields) {
  const auto default_window = static_cast<int64_t>(DefaultOf(fields, "sliding_window", 4096));
  ModelConfig config = TakeGemmaCommon(fields);
  const int64_t context = config.max_position_embeddings;
  const double local = TakeSplitRope(fields, config);
  if (config.max_position_embeddings > context) {  // which is the extended context already
    config.max_position_embeddings = context;
    fields.SetContextOrigin("");
  }
  TakeGemma2Attention(fields, /*attention_cap=*/0, /*logit_cap=*/0, config);
  config.qk_norm = true;
  const int64_t pattern = fields.Int("sliding_window_pattern", kInterval, 6);
  fields.Ignore("_sliding_window_pattern");  // the same in files with layer_types
  std::vector<LayerType> types = TakeLayerTypes(fields, config);
  if (types.empty()) types = SlidingExceptEvery(pattern, config);
  // Layers that slide turn locally even if their window is unbounded.
  const int64_t window = TakeWindow(fields, default_window);
  SetWindow(window == 0 ? config_limits::kOptionalWindow.high : window, std::move(types), config);
  if (config.sliding_window > 0) config.rope_local_base_freq = local;
  return config;
}

// The residual stream is divided by the factor of the branches, as MiniCPM3's is.
ModelConfig ParseGraniteConfig(JsonFields& fields) {
  ModelConfig config = TakeGroupedSizes(fields);
  TakeRope(fields, config);
  TakeRmsNorm(fields, config);
  TakeSwiglu(fields, config);
  config.attention_bias = fields.Bool("attention_bias", false);
  config.mlp_bias = fields.Bool("mlp_bias", false);
  const double branch = fields.Number("residual_multiplier", kMultiplier, 1.0);
  config.norm_eps /= branch * branch;
  config.embedding_multiplier =
      fields.Number("embedding_multiplier", config_limits::kFactor, 1.0) / branch;
  config.attention_score_factor =
      fields.Number("attention_multiplier", config_limits::kFactor, 1.0) *
      std::sqrt(static_cast<double>(config.head_dim));
  config.logit_multiplier = 1 / fields.Number("logits_scaling", kMultiplier, 1.0);
  TakeHead(fields, /*tied=*/false, config);
  return config;
}

ModelConfig ParseOlmo2Config(JsonFields& fields) {
  RequireFields(fields, {"rms_norm_eps"});
  ModelConfig config = TakeGroupedSizes(fields);
  TakeRope(fields, config);
  TakeRmsNorm(fields, config);
  config.norm_inputs = false;
  config.norm_outputs = true;
  config.qk_norm = config.qk_norm_all_heads = true;
  TakeSwiglu(fields, config);
  config.attention_bias = fields.Bool("attention_bias", false);
  TakeHead(fields, /*tied=*/false, config);
  return config;
}

ModelConfig ParsePhi3Config(JsonFields& fields) {
  RequireFields(fields, {"rms_norm_eps"});
  ModelConfig config = TakeGroupedSizes(fields);
  TakePartialRope(fields, /*share=*/1, config);
  TakeRmsNorm(fields, config);
  TakeSwiglu(fields, config);
  for (const char* field : {"attention_bias", "lm_head_bias", "mlp_bias"}) {
    fields.Only(field, false);
  }
  for (const char* field : {"full_attn_mod", "interpolate_factor"}) fields.Only(field, 1);
  for (const char* field : {"embd_pdrop", "original_max_position_embeddings", "resid_pdrop"}) {
    fields.Ignore(field);  // the second is only of longrope, which has taken it
  }
  SetWindow(TakeWindow(fields, /*default_window=*/0), {}, config);
  TakeHead(fields, /*tied=*/false, config);
  return config;
}

ModelConfig ParseSmolLm3Config(JsonFields& fields) {
  RequireFields(fields, {"num_key_value_heads"});
  ModelConfig config = TakeGroupedSizes(fields);
  RequireRopeTheta(fields);
  const int64_t layers = config.num_hidden_layers;
  const int64_t interval = fields.Int("no_rope_layer_interval", kInterval, 4);
  if (fields.Has("no_rope_layers")) {
    for (const Json& rotates : fields.List("no_rope_layers")) {
      config.no_rope_layers.push_back(fields.CheckedInt("no_rope_layers", rotates, {0, 1}));
    }
  } else {
    for (int64_t layer = 1; layer <= layers; ++layer) {
      config.no_rope_layers.push_back(layer % interval != 0 ? 1 : 0);
    }
  }
  TakeRope(fields, config);
  TakeRmsNorm(fields, config);
  TakeSwiglu(fields, config);
  config.attention_bias = fields.Bool("attention_bias", false);
  config.mlp_bias = fields.Bool("mlp_bias", false);
  fields.Ignore("max_window_layers");  // not read
  std::vector<LayerType> types;        // layers that do not rotate slide
  for (const int64_t rotates : config.no_rope_layers) {
    types.push_back(rotates != 0 ? LayerType::kFull : LayerType::kSliding);
  }
  TakeUsedWindow(fields, /*default_window=*/0, std::move(types), config);
  TakeHead(fields, /*tied=*/true, config);
  return config;
}

TensorMap GemmaTensors(const ModelConfig& config, const TensorSource&) {
  TensorMap map{.origins = {}, .left_out = TensorsBeside(config)};
  for (const std::string& norm : NormNames(config)) {
    const std::string weight = norm + ".weight";
    map.origins.emplace(weight, TensorOrigin{.tensor = weight, .plus_one = true});
  }
  return map;
}

TensorMap Gemma2Tensors(const ModelConfig& config, const TensorSource&) {
  TensorMap map{.origins = {}, .left_out = TensorsBeside(config)};
  const auto add = [&](const std::string& to, const std::string& from) {
    map.origins.emplace(to + ".weight", TensorOrigin{.tensor = from + ".weight", .plus_one = true});
  };
  add("model.norm", "model.norm");
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string prefix = LayerPrefix(layer);
    for (const auto& [to, from] : kGemma2Norms) add(prefix + to, prefix + from);
    if (!config.qk_norm) continue;
    for (const char* norm : {"self_attn.q_norm", "self_attn.k_norm"}) {
      add(prefix + norm, prefix + norm);
    }
  }
  return map;
}

TensorMap Olmo2Tensors(const ModelConfig& config, const TensorSource&) {
  TensorMap map{.origins = {}, .left_out = TensorsBeside(config)};
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string prefix = LayerPrefix(layer);
    for (const auto& [to, from] :
         {std::pair{"post_self_attn_layernorm", "post_attention_layernorm"},
          {"post_mlp_layernorm", "post_feedforward_layernorm"}}) {
      map.origins.emplace(prefix + to + ".weight",
                          TensorOrigin{.tensor = prefix + from + ".weight"});
    }
  }
  return map;
}

TensorMap Phi3Tensors(const ModelConfig& config, const TensorSource&) {
  TensorMap map{.origins = {}, .left_out = TensorsBeside(config)};
  const int64_t query_rows = config.num_attention_heads * config.head_dim;
  const int64_t key_rows = config.num_key_value_heads * config.head_dim;
  const int64_t inner = config.intermediate_size;
  const auto split = [&](const std::string& prefix, const std::string& fused,
                         const std::vector<std::pair<const char*, int64_t>>& parts) {
    int64_t all = 0, first = 0;
    for (const auto& [name, rows] : parts) all += rows;
    for (const auto& [name, rows] : parts) {
      map.origins.emplace(
          prefix + name + ".weight",
          TensorOrigin{.tensor = prefix + fused, .first_row = first, .rows = rows, .of_rows = all});
      first += rows;
    }
  };
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    split(LayerPrefix(layer) + "self_attn.", "qkv_proj.weight",
          {{"q_proj", query_rows}, {"k_proj", key_rows}, {"v_proj", key_rows}});
    split(LayerPrefix(layer) + "mlp.", "gate_up_proj.weight",
          {{"gate_proj", inner}, {"up_proj", inner}});
  }
  return map;
}

}  // namespace triptych::checkpoint
