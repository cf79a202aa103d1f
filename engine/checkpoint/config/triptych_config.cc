#include "engine/checkpoint/config/triptych_config.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>

#include "engine/checkpoint/config/grouped_fields.h"
#include "engine/checkpoint/config/published_fields.h"
#include "engine/model/validate_config.h"

namespace triptych::checkpoint {
namespace {

// Refuses fields that are there, for the reason `allowed`.
void RefuseFields(JsonFields& fields, std::initializer_list<const char*> names,
                  const std::string& allowed) {
  for (const char* name : names) {
    if (fields.Has(name)) fields.RefuseValue(name, fields.Take(name, nullptr), allowed);
  }
}

// A number is every layer's.
std::vector<int64_t> TakeRanks(JsonFields& fields, int64_t layers) {
  constexpr const char* kField = "kv_lora_rank";
  const Json rank = fields.Take(kField, nullptr);
  const auto checked = [&](const Json& r) {
    return fields.CheckedInt(kField, r, config_limits::kWidth);
  };
  if (!rank.is_array()) return std::vector<int64_t>(layers, checked(rank));
  std::vector<int64_t> ranks;
  for (const Json& r : rank) ranks.push_back(checked(r));
  return ranks;
}

void TakeLatents(JsonFields& fields, ModelConfig& config) {
  if (config.attention != AttentionKind::kMla) {
    RefuseFields(
        fields,
        {"kv_lora_rank", "qk_rope_head_dim", "v_head_dim", "kv_a_layernorm", "q_lora_rank",
         "latent_norm_eps", "latent_bias"},
        "allowed only with attention \"mla\", not \"" + std::string(Name(config.attention)) + "\"");
    return;
  }
  config.kv_lora_rank = TakeRanks(fields, config.num_hidden_layers);
  config.qk_rope_head_dim = fields.Int("qk_rope_head_dim", config_limits::kOptionalWidth, 0);
  config.v_head_dim = fields.Int("v_head_dim", config_limits::kOptionalWidth, 0);
  config.kv_a_layernorm = fields.Bool("kv_a_layernorm", false);
  config.q_lora_rank = fields.Int("q_lora_rank", config_limits::kOptionalWidth, 0);
  config.latent_bias = fields.Bool("latent_bias", false);
  if (fields.Has("latent_norm_eps")) {
    config.latent_norm_eps = fields.Number("latent_norm_eps", config_limits::kEpsilon);
  }
}

void TakeAttention(JsonFields& fields, ModelConfig& config) {
  config.attention = fields.Choice<AttentionKind>("attention");
  const bool gqa = config.attention == AttentionKind::kGqa;
  config.num_key_value_heads = fields.Int("num_key_value_heads", config_limits::kWidth,
                                          gqa ? Json() : Json(config.num_attention_heads));
  config.head_grouping = fields.Choice<HeadGrouping>("head_grouping", "modular");
  config.qk_norm = fields.Bool("qk_norm", false);
  config.qk_norm_all_heads = fields.Bool("qk_norm_all_heads", false);
  config.attention_score_factor =
      fields.Number("attention_score_factor", config_limits::kFactor, 1.0);
  config.scale_attn_by_inverse_layer_idx = fields.Bool("scale_attn_by_inverse_layer_idx", false);
  config.sliding_window = fields.Int("sliding_window", config_limits::kOptionalWindow, 0);
  config.layer_types = TakeLayerTypes(fields, config);
  config.attn_logit_softcapping = TakeSoftcap(fields, "attn_logit_softcapping", 0);
  TakeLatents(fields, config);
}

// 1 for a layer that rotates, 0 for one that does not.
void TakeNoRopeLayers(JsonFields& fields, ModelConfig& config) {
  constexpr const char* kField = "no_rope_layers";
  if (!fields.Has(kField)) return;
  for (const Json& flag : fields.List(kField)) {
    config.no_rope_layers.push_back(fields.CheckedInt(kField, flag, {0, 1}));
  }
}

void TakePositions(JsonFields& fields, ModelConfig& config) {
  config.position_embedding = fields.Choice<PositionEmbedding>("position_embedding");
  if (config.position_embedding != PositionEmbedding::kRope) {
    RefuseFields(fields,
                 {"rope_theta", "rope_interleave", "rope_factors", "rope_attention_factor",
                  "rope_local_base_freq", "rotary_dim", "no_rope_layers"},
                 "allowed only with position_embedding \"rope\"");
    return;
  }
  config.rope_theta = fields.Number("rope_theta", config_limits::kRopeTheta, 10000.0);
  config.rope_interleave = fields.Bool("rope_interleave", true);
  config.rope_attention_factor =
      fields.Number("rope_attention_factor", config_limits::kFactor, 1.0);
  if (fields.Has("rope_local_base_freq")) {
    config.rope_local_base_freq = fields.Number("rope_local_base_freq", config_limits::kRopeTheta);
  }
  if (fields.Has("rope_factors")) config.rope_factors = fields.Numbers("rope_factors");
  config.rotary_dim = fields.Int("rotary_dim", config_limits::kOptionalWidth, 0);
  TakeNoRopeLayers(fields, config);
}

void TakeExperts(JsonFields& fields, ModelConfig& config) {
  constexpr const char *kExperts = "n_routed_experts", *kSparse = "sparse_layers";
  if (!fields.Has(kExperts)) {
    RefuseFields(fields,
                 {"num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size",
                  "shared_expert_gate", "scoring_func", "topk_method", "n_group", "topk_group",
                  "norm_topk_prob", "routed_scaling_factor", kSparse},
                 "allowed only with n_routed_experts");
    return;
  }
  ExpertsConfig& experts = config.experts;
  experts.n_routed_experts = fields.Int(kExperts, config_limits::kExperts);
  experts.num_experts_per_tok = fields.Int("num_experts_per_tok", config_limits::kExperts);
  experts.moe_intermediate_size = fields.Int("moe_intermediate_size", config_limits::kWidth);
  experts.shared_expert_intermediate_size =
      fields.Int("shared_expert_intermediate_size", config_limits::kOptionalWidth, 0);
  experts.shared_expert_gate = fields.Bool("shared_expert_gate", false);
  experts.scoring_func = fields.Choice<ScoringFunc>("scoring_func");
  experts.topk_method = fields.Choice<TopkMethod>("topk_method");
  experts.n_group = fields.Int("n_group", config_limits::kExperts, 1);
  experts.topk_group = fields.Int("topk_group", config_limits::kExperts, 1);
  experts.norm_topk_prob = fields.Bool("norm_topk_prob", false);
  experts.routed_scaling_factor =
      fields.Number("routed_scaling_factor", config_limits::kFactor, 1.0);
  if (!fields.Has(kSparse)) return;
  for (const Json& flag : fields.List(kSparse)) {
    experts.sparse_layers.push_back(fields.CheckedInt(kSparse, flag, {0, 1}));
  }
}

// "quantization_config": {"quant_method": "triptych", "bits": 8, "group_size": 32,
//                         "embeddings": true}
void TakeQuantization(JsonFields& fields, ModelConfig& config) {
  constexpr const char* kField = "quantization_config";
  if (!fields.Has(kField)) return;
  const Json value = fields.Take(kField, nullptr);
  const auto has = [&](const char* name, const Json& wanted) {
    return value.contains(name) && value.at(name) == wanted;
  };
  const bool known = value.is_object() && value.size() == 4 && has("quant_method", kTriptychType) &&
                     (has("bits", 8) || has("bits", 4)) && has("group_size", kQuantizationGroup) &&
                     (has("embeddings", true) || has("embeddings", false));
  if (!known) {
    fields.RefuseValue(kField, value,
                       "allowed: {\"quant_method\": \"triptych\", \"bits\": 8 or 4, "
                       "\"group_size\": 32, \"embeddings\": true or false}");
  }
  config.quantization = {.format = has("bits", 8) ? WeightFormat::kInt8 : WeightFormat::kInt4,
                         .embeddings = has("embeddings", true)};
}

// "training_texts": [{"sha256": "<64 hexadecimal digits>", "held_out": 0.1}, ...]
void TakeTrainingTexts(JsonFields& fields, ModelConfig& config) {
  constexpr const char* kField = "training_texts";
  const Json texts = fields.Take(kField, Json::array());
  const auto is_text = [](const Json& text) {
    return text.is_object() && text.size() == 2 && text.value("sha256", Json()).is_string() &&
           text.value("held_out", Json()).is_number();
  };
  if (!texts.is_array() || !std::all_of(texts.begin(), texts.end(), is_text)) {
    fields.RefuseValue(kField, texts, AllowedTrainingTexts());
  }
  for (const Json& text : texts) {
    config.training_texts.push_back(
        {text["sha256"].get<std::string>(), text["held_out"].get<double>()});
  }
}

const char* DefaultActivation(MlpKind mlp) {
  switch (mlp) {
    case MlpKind::kGelu:
    case MlpKind::kGeglu:
      return "gelu";
    case MlpKind::kSwiglu:
      return "silu";
    case MlpKind::kRelu2:
      return "relu2";
  }
  return "";
}

}  // namespace

ModelConfig ParseTriptychConfig(JsonFields& fields) {
  ModelConfig config;
  TakeSizes(fields, config);
  TakeHeadDim(fields, config);
  TakeAttention(fields, config);
  TakePositions(fields, config);
  config.norm = fields.Choice<NormKind>("norm");
  config.norm_eps = fields.Number("norm_eps", config_limits::kEpsilon, 1e-5);
  config.norm_bias = fields.Bool("norm_bias", false);
  config.norm_inputs = fields.Bool("norm_inputs", true);
  config.norm_outputs = fields.Bool("norm_outputs", false);
  config.use_parallel_residual = fields.Bool("use_parallel_residual", false);
  config.mlp = fields.Choice<MlpKind>("mlp");
  config.hidden_act = fields.Choice<HiddenAct>("hidden_act", DefaultActivation(config.mlp));
  config.mlp_bias = fields.Bool("mlp_bias", false);
  TakeExperts(fields, config);
  config.attention_bias = fields.Bool("attention_bias", false);
  if (fields.Has("attention_output_bias")) {
    config.attention_output_bias = fields.Bool("attention_output_bias", false);
  }
  config.embedding_multiplier = fields.Number("embedding_multiplier", config_limits::kFactor, 1.0);
  config.logit_multiplier = fields.Number("logit_multiplier", config_limits::kFactor, 1.0);
  config.final_logit_softcapping = TakeSoftcap(fields, "final_logit_softcapping", 0);
  config.tie_word_embeddings = fields.Bool("tie_word_embeddings", false);
  config.torch_dtype = fields.Choice<TensorFormat>("torch_dtype");
  TakeQuantization(fields, config);
  TakeTrainingTexts(fields, config);
  return config;
}

}  // namespace triptych::checkpoint
