#include "engine/checkpoint/config/latent_families.h"

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "engine/checkpoint/config/expert_fields.h"
#include "engine/checkpoint/config/grouped_fields.h"
#include "engine/checkpoint/config/published_fields.h"
#include "engine/checkpoint/config/rope_scaling.h"
#include "engine/model/tensor_names.h"
#include "engine/model/validate_config.h"

namespace triptych::checkpoint {
namespace {

constexpr Range<double> kDepth{1e-3, config_limits::kFactor.high};  // a divisor
constexpr Range<double> kBaseWidth{0, 1 << 20, /*above_low=*/true};
constexpr const char* kQueryRank = "q_lora_rank";
constexpr const char* kLatentNorm = "qk_latent_layernorm";

// Every field except the width of values, the norm's epsilon, the activation, positions and the
// head.
ModelConfig TakeLatentCommon(JsonFields& fields) {
  IgnoreWhatChangesNothing(fields);
  ModelConfig config;
  TakeSizes(fields, config);
  config.attention = AttentionKind::kMla;
  config.num_key_value_heads = config.num_attention_heads;
  fields.Only("num_key_value_heads", config.num_attention_heads);
  config.head_dim = fields.Int("qk_nope_head_dim", config_limits::kWidth);
  config.qk_rope_head_dim = fields.Int("qk_rope_head_dim", config_limits::kWidth);
  config.kv_lora_rank.assign(config.num_hidden_layers,
                             fields.Int("kv_lora_rank", config_limits::kWidth));
  config.q_lora_rank = fields.Int(kQueryRank, config_limits::kOptionalWidth, 0);
  config.kv_a_layernorm = true;
  config.latent_norm_eps = kDeepseekLatentNormEps;
  config.latent_bias = fields.Bool("attention_bias", false);
  config.attention_output_bias = config.latent_bias;
  fields.Only("mlp_bias", false);
  config.norm = NormKind::kRmsNorm;
  TakeDtype(fields, config);
  // Derived from other fields.
  for (const char* field : {"head_dim", "qk_head_dim"}) fields.Ignore(field);
  return config;
}

// Every field except the activation, positions and the head.
ModelConfig TakeLatent(JsonFields& fields) {
  ModelConfig config = TakeLatentCommon(fields);
  config.v_head_dim = fields.Int("v_head_dim", config_limits::kWidth);
  TakeRmsNorm(fields, config);
  return config;
}

// Every field except the order of rotary pairs and the head.
ModelConfig TakeDeepseek(JsonFields& fields, DeepseekRouter router) {
  RequireFields(fields, {kQueryRank});  // null: none
  ModelConfig config = TakeLatent(fields);
  TakeSwiglu(fields, config);
  TakeDeepseekExperts(fields, router, config);
  TakeLatentRope(fields, config);
  return config;
}

// The fields of models that TransMLA (arXiv:2502.07864) converts from Llama, Mistral and Qwen 2.
// They have no latent norms, unless qk_latent_layernorm is true, and their biases are the source's:
// of queries and latents, not of the output.
void TakeTransMla(JsonFields& fields, ModelConfig& config) {
  if (!fields.Has(kLatentNorm)) return;
  config.kv_a_layernorm = fields.Bool(kLatentNorm, true);
  if (!config.kv_a_layernorm && config.q_lora_rank > 0) {
    fields.Refuse(kLatentNorm, "false", "it must be true with q_lora_rank");
  }
  config.attention_bias = config.latent_bias && config.q_lora_rank == 0;
  config.attention_output_bias = false;
  fields.Only("use_sliding_window", false);
  for (const char* field : {"sliding_window", "max_window_layers"}) fields.Ignore(field);
}

}  // namespace

ModelConfig ParseDeepseekV2Config(JsonFields& fields) {
  fields.Ignore("rope_interleave");  // not read: pairs are interleaved
  ModelConfig config = TakeDeepseek(fields, DeepseekRouter::kSoftmax);
  config.rope_interleave = true;
  config.tie_word_embeddings = fields.Bool("tie_word_embeddings", false);
  return config;
}

ModelConfig ParseDeepseekV3Config(JsonFields& fields) {
  ModelConfig config = TakeDeepseek(fields, DeepseekRouter::kNoauxTc);
  TakeTransMla(fields, config);
  config.rope_interleave = fields.Bool("rope_interleave", true);
  config.tie_word_embeddings = fields.Bool("tie_word_embeddings", false);
  return config;
}

ModelConfig ParseYoutuConfig(JsonFields& fields) {
  fields.Ignore("embedding_initializer_range");  // of training
  ModelConfig config = TakeDeepseek(fields, DeepseekRouter::kNoauxTc);
  config.rope_interleave = fields.Bool("rope_interleave", true);
  config.tie_word_embeddings = fields.Bool("tie_word_embeddings", true);
  return config;
}

ModelConfig ParsePlmConfig(JsonFields& fields) {
  ModelConfig config = TakeLatent(fields);
  config.mlp = MlpKind::kRelu2;
  config.hidden_act = HiddenAct::kRelu2;
  fields.Only("hidden_act", "relu2");
  config.rope_interleave = fields.Bool("rope_interleave", true);
  RequireRopeTheta(fields);
  TakeRope(fields, config);
  config.tie_word_embeddings = fields.Bool("tie_word_embeddings", true);
  return config;
}

// MiniCPM multiplies embeddings by e = scale_emb, branches by b = scale_depth / sqrt(layers), and
// the head's input by h = dim_model_base / hidden_size. Every reader of the residual stream norms
// it, so it may be divided by b: embeddings times e / b, branches unchanged, eps / b^2 in each
// norm.
ModelConfig ParseMiniCpm3Config(JsonFields& fields) {
  RequireFields(fields, {kQueryRank});  // null: none
  ModelConfig config = TakeLatentCommon(fields);
  TakeSwiglu(fields, config);
  const int64_t width = config.hidden_size, heads = config.num_attention_heads;
  if (width % heads != 0) {
    fields.Refuse("num_attention_heads", std::to_string(heads),
                  "it must divide hidden_size = " + std::to_string(width));
  }
  config.v_head_dim = width / heads;
  fields.Only("v_head_dim", config.v_head_dim);
  const double depth = fields.Number("scale_depth", kDepth);
  const double branch = depth / std::sqrt(static_cast<double>(config.num_hidden_layers));
  config.embedding_multiplier = fields.Number("scale_emb", config_limits::kFactor) / branch;
  config.logit_multiplier =
      fields.Number("dim_model_base", kBaseWidth) / static_cast<double>(width);
  config.norm_eps = fields.Number("rms_norm_eps", config_limits::kEpsilon) / (branch * branch);
  config.rope_interleave = false;
  TakeLatentRope(fields, config);
  config.tie_word_embeddings = fields.Bool("tie_word_embeddings", true);
  return config;
}

TensorMap LatentTensors(const ModelConfig& config, const TensorSource& published) {
  TensorMap map{.origins = {}, .left_out = TensorsBeside(config)};
  // Layers beyond the last predict further tokens; each of them has a tensor eh_proj.
  const int64_t first = config.num_hidden_layers;
  int64_t end = first;
  while (published.Find(LayerPrefix(end) + "eh_proj.weight") != nullptr) ++end;
  for (const std::string& name : published.TensorNames()) {
    const std::optional<int64_t> layer = LayerOf(name);
    if (layer && *layer >= first && *layer < end) map.left_out.push_back(name);
  }
  if (const int64_t further = end - first; further > 0) {
    map.notes.push_back(std::to_string(further) + " layers from " +
                        LayerPrefix(config.num_hidden_layers) +
                        "* on predict further tokens and are not used");
  }
  return map;
}

OrderedJson DeepseekV3Fields(const ModelConfig& config) {
  OrderedJson json;
  json["architectures"] = {"DeepseekV3ForCausalLM"};
  json["model_type"] = "deepseek_v3";
  json["attention_bias"] = config.latent_bias;
  // generation_config.json names them; null replaces a default of other programs.
  json["bos_token_id"] = nullptr;
  json["eos_token_id"] = nullptr;
  json["first_k_dense_replace"] = config.num_hidden_layers;
  json["hidden_act"] = Name(config.hidden_act);
  json["hidden_size"] = config.hidden_size;
  json["intermediate_size"] = config.intermediate_size;
  json["kv_lora_rank"] = config.kv_lora_rank.front();
  json["max_position_embeddings"] = config.max_position_embeddings;
  json["n_routed_experts"] = nullptr;
  json["num_attention_heads"] = config.num_attention_heads;
  json["num_hidden_layers"] = config.num_hidden_layers;
  json["num_key_value_heads"] = config.num_attention_heads;
  json[kQueryRank] = config.q_lora_rank > 0 ? OrderedJson(config.q_lora_rank) : OrderedJson();
  json["qk_nope_head_dim"] = config.head_dim;
  json["qk_rope_head_dim"] = config.qk_rope_head_dim;
  json["rms_norm_eps"] = config.norm_eps;
  json["rope_interleave"] = config.rope_interleave;
  json["rope_scaling"] = nullptr;
  if (!config.rope_factors.empty()) {
    // The rotation that takes a factor for each pair. "factor" is of the context.
    json["rope_scaling"] = {{"rope_type", "longrope"},
                            {"short_factor", config.rope_factors},
                            {"long_factor", config.rope_factors},
                            {"factor", 1.0},
                            {"attention_factor", config.rope_attention_factor},
                            {"original_max_position_embeddings", config.max_position_embeddings}};
  }
  json["rope_theta"] = config.rope_theta;
  json["tie_word_embeddings"] = config.tie_word_embeddings;
  json["torch_dtype"] = Name(config.torch_dtype);
  json["v_head_dim"] = config.ValueDim();
  json["vocab_size"] = config.vocab_size;
  return json;
}

}  // namespace triptych::checkpoint
