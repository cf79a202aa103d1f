#include "engine/checkpoint/config/latent_families.h"

#include <cmath>
#include <string>
#include <vector>

#include "engine/checkpoint/config/published_fields.h"
#include "engine/checkpoint/config/rope_scaling.h"
#include "engine/model/tensor_names.h"
#include "engine/model/validate_config.h"

namespace triptych::checkpoint {
namespace {

constexpr Range<double> kDepth{1e-3, config_limits::kFactor.high};  // a divisor
constexpr Range<double> kBaseWidth{0, 1 << 20, /*above_low=*/true};
constexpr Range<int64_t> kCount{0, 1 << 20};

// Fields of mixtures of experts: without effect in a model whose layers are all dense.
constexpr const char* kOfExperts[] = {
    "aux_loss_alpha",
    "ep_size",
    "moe_intermediate_size",
    "moe_layer_freq",
    "n_group",
    "n_shared_experts",
    "norm_topk_prob",
    "num_experts_per_tok",
    "routed_scaling_factor",
    "scoring_func",
    "seq_aux",
    "topk_group",
    "topk_method",
};

// Every field except the norm's epsilon, positions and the head.
ModelConfig TakeLatentCommon(JsonFields& fields) {
  const bool has_query_rank = fields.Has("q_lora_rank");  // null: none
  IgnoreWhatChangesNothing(fields);
  if (!has_query_rank) fields.RefuseMissing("q_lora_rank");
  ModelConfig config;
  TakeSizes(fields, config);
  config.attention = AttentionKind::kMla;
  config.num_key_value_heads = config.num_attention_heads;
  fields.Only("num_key_value_heads", config.num_attention_heads);
  config.head_dim = fields.Int("qk_nope_head_dim", config_limits::kWidth);
  config.qk_rope_head_dim = fields.Int("qk_rope_head_dim", config_limits::kWidth);
  config.kv_lora_rank.assign(config.num_hidden_layers,
                             fields.Int("kv_lora_rank", config_limits::kWidth));
  config.q_lora_rank = fields.Int("q_lora_rank", config_limits::kOptionalWidth, 0);
  config.kv_a_layernorm = true;
  config.latent_norm_eps = 1e-6;  // fixed; rms_norm_eps is of the other norms
  config.latent_bias = fields.Bool("attention_bias", false);
  config.attention_output_bias = config.latent_bias;
  fields.Only("mlp_bias", false);
  config.norm = NormKind::kRmsNorm;
  config.mlp = MlpKind::kSwiglu;
  config.hidden_act = HiddenAct::kSilu;
  fields.Only("hidden_act", "silu");
  TakeDtype(fields, config);
  return config;
}

// Every field except the order of rotary pairs.
ModelConfig TakeDeepseek(JsonFields& fields) {
  ModelConfig config = TakeLatentCommon(fields);
  const int64_t experts = fields.Int("n_routed_experts", kCount, 0);
  const int64_t dense = fields.Int("first_k_dense_replace", kCount, 0);
  if (experts > 0 && dense < config.num_hidden_layers) {
    fields.Refuse("n_routed_experts", std::to_string(experts),
                  "supported: none, or first_k_dense_replace of at least num_hidden_layers = " +
                      std::to_string(config.num_hidden_layers));
  }
  for (const char* field : kOfExperts) fields.Ignore(field);
  // Derived from other fields.
  for (const char* field : {"head_dim", "num_nextn_predict_layers", "qk_head_dim"}) {
    fields.Ignore(field);
  }
  config.v_head_dim = fields.Int("v_head_dim", config_limits::kWidth);
  config.norm_eps = fields.Number("rms_norm_eps", config_limits::kEpsilon, 1e-6);
  config.rope_interleave = true;
  TakeLatentRope(fields, config);
  config.tie_word_embeddings = fields.Bool("tie_word_embeddings", false);
  return config;
}

}  // namespace

ModelConfig ParseDeepseekV2Config(JsonFields& fields) {
  fields.Ignore("rope_interleave");  // not read: pairs are interleaved
  return TakeDeepseek(fields);
}

ModelConfig ParseDeepseekV3Config(JsonFields& fields) {
  const bool interleave = fields.Bool("rope_interleave", true);
  ModelConfig config = TakeDeepseek(fields);
  config.rope_interleave = interleave;
  return config;
}

// MiniCPM multiplies embeddings by e = scale_emb, branches by b = scale_depth / sqrt(layers), and
// the head's input by h = dim_model_base / hidden_size. Every reader of the residual stream norms
// it, so it may be divided by b: embeddings times e / b, branches unchanged, eps / b^2 in each
// norm.
ModelConfig ParseMiniCpm3Config(JsonFields& fields) {
  ModelConfig config = TakeLatentCommon(fields);
  const int64_t width = config.hidden_size, heads = config.num_attention_heads;
  if (width % heads != 0) {
    fields.Refuse("num_attention_heads", std::to_string(heads),
                  "it must divide hidden_size = " + std::to_string(width));
  }
  config.v_head_dim = width / heads;
  fields.Only("v_head_dim", config.v_head_dim);
  for (const char* field : {"head_dim", "qk_head_dim"}) fields.Ignore(field);
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
  const std::vector<std::string> names = published.TensorNames();
  for (int64_t layer = config.num_hidden_layers;; ++layer) {
    const std::string prefix = LayerPrefix(layer);
    if (published.Find(prefix + "eh_proj.weight") == nullptr) return map;
    for (const std::string& name : names) {
      if (name.starts_with(prefix)) map.left_out.push_back(name);
    }
  }
}

}  // namespace triptych::checkpoint
