#include "engine/checkpoint/config_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/base/file.h"
#include "engine/checkpoint/triptych_config.h"

namespace triptych {
namespace {

constexpr uint64_t kMaxConfigBytes = uint64_t{1} << 20;

struct Family {
  const char* model_type;
  ModelConfig (*parse)(JsonFields& fields);
};

constexpr Family kFamilies[] = {{kTriptychType, ParseTriptychConfig}};

}  // namespace

ModelConfig ParseModelConfig(std::string_view json, const std::string& source) {
  return ParseModelConfig(JsonFields(ParseJson(json, source), source));
}

ModelConfig ParseModelConfig(JsonFields fields) {
  const Json type = fields.Take("model_type", kTriptychType);
  std::string allowed = "allowed:";
  for (const Family& family : kFamilies) {
    if (type == family.model_type) {
      const ModelConfig config = family.parse(fields);
      fields.RefuseLeftOver();
      return config;
    }
    allowed += (allowed.back() == ':' ? " \"" : ", \"") + std::string(family.model_type) + '"';
  }
  fields.RefuseValue("model_type", type, allowed);
}

ModelConfig ReadModelConfig(const std::filesystem::path& file) {
  return ParseModelConfig(ReadText(file, kMaxConfigBytes), file.string());
}

std::string ToJson(const ModelConfig& config) {
  nlohmann::ordered_json json;
  json["model_type"] = kTriptychType;
  json["attention"] = Name(config.attention);
  json["hidden_size"] = config.hidden_size;
  json["num_hidden_layers"] = config.num_hidden_layers;
  json["num_attention_heads"] = config.num_attention_heads;
  json["num_key_value_heads"] = config.num_key_value_heads;
  json["head_dim"] = config.head_dim;
  json["head_grouping"] = Name(config.head_grouping);
  if (config.attention == AttentionKind::kMla) {
    const auto& ranks = config.kv_lora_rank;
    if (std::equal(ranks.begin() + 1, ranks.end(), ranks.begin())) {
      json["kv_lora_rank"] = ranks.front();
    } else {
      json["kv_lora_rank"] = ranks;
    }
    json["qk_rope_head_dim"] = config.qk_rope_head_dim;
    json["kv_a_layernorm"] = config.kv_a_layernorm;
  }
  json["intermediate_size"] = config.intermediate_size;
  json["max_position_embeddings"] = config.max_position_embeddings;
  json["vocab_size"] = config.vocab_size;
  json["position_embedding"] = Name(config.position_embedding);
  if (config.position_embedding == PositionEmbedding::kRope) {
    json["rope_theta"] = config.rope_theta;
    json["rope_interleave"] = config.rope_interleave;
  }
  json["norm"] = Name(config.norm);
  json["norm_eps"] = config.norm_eps;
  json["norm_bias"] = config.norm_bias;
  json["mlp"] = Name(config.mlp);
  json["hidden_act"] = Name(config.hidden_act);
  json["mlp_bias"] = config.mlp_bias;
  json["attention_bias"] = config.attention_bias;
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
  return json.dump(2) + "\n";
}

}  // namespace triptych
