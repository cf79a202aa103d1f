#include "engine/checkpoint/config/config_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/checkpoint/config/families.h"
#include "engine/checkpoint/config/latent_families.h"
#include "engine/checkpoint/config/triptych_config.h"

namespace triptych::checkpoint {
namespace {

constexpr const char* kPositionsField = "max_position_embeddings";
constexpr uint64_t kMaxConfigBytes = uint64_t{1} << 20;

void WriteLatents(const ModelConfig& config, OrderedJson& json) {
  const auto& ranks = config.kv_lora_rank;
  if (std::equal(ranks.begin() + 1, ranks.end(), ranks.begin())) {
    json["kv_lora_rank"] = ranks.front();
  } else {
    json["kv_lora_rank"] = ranks;
  }
  json["qk_rope_head_dim"] = config.qk_rope_head_dim;
  if (config.v_head_dim > 0) json["v_head_dim"] = config.v_head_dim;
  json["kv_a_layernorm"] = config.kv_a_layernorm;
  if (config.q_lora_rank > 0) json["q_lora_rank"] = config.q_lora_rank;
  if (config.latent_bias) json["latent_bias"] = true;
  if (config.latent_norm_eps) json["latent_norm_eps"] = *config.latent_norm_eps;
}

void WriteAttention(const ModelConfig& config, OrderedJson& json) {
  json["num_attention_heads"] = config.num_attention_heads;
  json["num_key_value_heads"] = config.num_key_value_heads;
  json["head_dim"] = config.head_dim;
  json["head_grouping"] = Name(config.head_grouping);
  if (config.attention == AttentionKind::kMla) WriteLatents(config, json);
  if (config.qk_norm) json["qk_norm"] = true;
  if (config.qk_norm_all_heads) json["qk_norm_all_heads"] = true;
  if (config.attention_score_factor != 1) {
    json["attention_score_factor"] = config.attention_score_factor;
  }
  if (config.scale_attn_by_inverse_layer_idx) json["scale_attn_by_inverse_layer_idx"] = true;
  if (config.sliding_window > 0) json["sliding_window"] = config.sliding_window;
  for (const LayerType type : config.layer_types) json["layer_types"].push_back(Name(type));
  if (config.attn_logit_softcapping > 0) {
    json["attn_logit_softcapping"] = config.attn_logit_softcapping;
  }
}

void WritePositions(const ModelConfig& config, OrderedJson& json) {
  json["position_embedding"] = Name(config.position_embedding);
  if (config.position_embedding != PositionEmbedding::kRope) return;
  json["rope_theta"] = config.rope_theta;
  if (!config.rope_factors.empty()) json["rope_factors"] = config.rope_factors;
  if (config.rope_attention_factor != 1) {
    json["rope_attention_factor"] = config.rope_attention_factor;
  }
  if (config.rope_local_base_freq > 0) json["rope_local_base_freq"] = config.rope_local_base_freq;
  json["rope_interleave"] = config.rope_interleave;
  if (config.rotary_dim > 0) json["rotary_dim"] = config.rotary_dim;
  if (!config.no_rope_layers.empty()) json["no_rope_layers"] = config.no_rope_layers;
}

void WriteExperts(const ExpertsConfig& experts, OrderedJson& json) {
  if (experts.n_routed_experts == 0) return;
  json["n_routed_experts"] = experts.n_routed_experts;
  json["num_experts_per_tok"] = experts.num_experts_per_tok;
  json["moe_intermediate_size"] = experts.moe_intermediate_size;
  if (experts.shared_expert_intermediate_size > 0) {
    json["shared_expert_intermediate_size"] = experts.shared_expert_intermediate_size;
  }
  if (experts.shared_expert_gate) json["shared_expert_gate"] = true;
  json["scoring_func"] = Name(experts.scoring_func);
  json["topk_method"] = Name(experts.topk_method);
  if (experts.n_group != 1) json["n_group"] = experts.n_group;
  if (experts.topk_group != 1) json["topk_group"] = experts.topk_group;
  json["norm_topk_prob"] = experts.norm_topk_prob;
  json["routed_scaling_factor"] = experts.routed_scaling_factor;
  if (!experts.sparse_layers.empty()) json["sparse_layers"] = experts.sparse_layers;
}

OrderedJson TriptychFields(const ModelConfig& config) {
  OrderedJson json;
  json["model_type"] = kTriptychType;
  json["attention"] = Name(config.attention);
  json["hidden_size"] = config.hidden_size;
  json["num_hidden_layers"] = config.num_hidden_layers;
  WriteAttention(config, json);
  json["intermediate_size"] = config.intermediate_size;
  json["max_position_embeddings"] = config.max_position_embeddings;
  json["vocab_size"] = config.vocab_size;
  WritePositions(config, json);
  json["norm"] = Name(config.norm);
  json["norm_eps"] = config.norm_eps;
  json["norm_bias"] = config.norm_bias;
  if (!config.norm_inputs) json["norm_inputs"] = false;
  if (config.norm_outputs) json["norm_outputs"] = true;
  if (config.use_parallel_residual) json["use_parallel_residual"] = true;
  json["mlp"] = Name(config.mlp);
  json["hidden_act"] = Name(config.hidden_act);
  json["mlp_bias"] = config.mlp_bias;
  WriteExperts(config.experts, json);
  json["attention_bias"] = config.attention_bias;
  if (config.attention_output_bias) json["attention_output_bias"] = *config.attention_output_bias;
  if (config.embedding_multiplier != 1) json["embedding_multiplier"] = config.embedding_multiplier;
  if (config.logit_multiplier != 1) json["logit_multiplier"] = config.logit_multiplier;
  if (config.final_logit_softcapping > 0) {
    json["final_logit_softcapping"] = config.final_logit_softcapping;
  }
  json["tie_word_embeddings"] = config.tie_word_embeddings;
  json["torch_dtype"] = Name(config.torch_dtype);
  if (config.quantization) {
    json["quantization_config"] = {
        {"quant_method", kTriptychType},
        {"bits", config.quantization->format == WeightFormat::kInt8 ? 8 : 4},
        {"group_size", kQuantizationGroup},
        {"embeddings", config.quantization->embeddings}};
  }
  for (const TrainingText& text : config.training_texts) {
    json["training_texts"].push_back({{"sha256", text.sha256}, {"held_out", text.held_out}});
  }
  return json;
}

}  // namespace

PublishedConfig TakePublishedConfig(JsonFields& fields) {
  const Family& family = FamilyOf(fields);
  std::optional<PublishedQuantization> quantization;
  if (family.quantized) quantization = TakePublishedQuantization(fields);
  PublishedConfig published{family.parse(fields), &family, fields.context_origin()};
  fields.RefuseLeftOver();
  if (quantization) {
    published.config.served_formats = {quantization->Nearest(),
                                       ToWeightFormat(published.config.torch_dtype)};
    published.quantization = quantization;
  }
  if (!published.context_origin.empty()) return published;
  const ConfigOrigin origin = OriginOf(family, fields);
  const auto named = origin.names.find(kPositionsField);
  published.context_origin = named == origin.names.end() ? kPositionsField : named->second;
  return published;
}

ConfigOrigin OriginOf(const Family& family, const JsonFields& fields) {
  ConfigOrigin origin{.file = fields.source(), .names = fields.names()};
  for (const auto& [field, published] : family.names) {
    origin.names[field] = fields.NameOf(published);
  }
  return origin;
}

PublishedConfig ParsePublishedConfig(JsonFields fields) {
  PublishedConfig published = TakePublishedConfig(fields);
  Validate(published.config, OriginOf(*published.family, fields));
  return published;
}

ModelConfig ParseModelConfig(std::string_view json, const std::string& source) {
  return ParsePublishedConfig(JsonFields(ParseJson(json, source), source)).config;
}

PublishedConfig ReadPublishedConfig(const std::filesystem::path& file) {
  const std::filesystem::path directory = file.parent_path();
  if (!Exists(file) && Exists(directory / kMistralConfigFile)) {
    throw LoadError(directory.string() + ": has a " + kMistralConfigFile +
                    ", Mistral's own form of a model, and no " + kConfigFile +
                    "; supported: " + kConfigFile);
  }
  const std::string json = ReadText(file, kMaxConfigBytes);
  return ParsePublishedConfig(JsonFields(ParseJson(json, file.string()), file.string()));
}

ModelConfig ReadModelConfig(const std::filesystem::path& file) {
  return ReadPublishedConfig(file).config;
}

std::string_view Name(ConfigForm form) {
  switch (form) {
    case ConfigForm::kTriptych:
      return "triptych";
    case ConfigForm::kDeepseek:
      return "deepseek";
  }
  return {};
}

std::string ToJson(const ModelConfig& config, ConfigForm form) {
  switch (form) {
    case ConfigForm::kTriptych:
      return TriptychFields(config).dump(2) + "\n";
    case ConfigForm::kDeepseek:
      return DeepseekV3Fields(config).dump(2) + "\n";
  }
  return {};
}

}  // namespace triptych::checkpoint
