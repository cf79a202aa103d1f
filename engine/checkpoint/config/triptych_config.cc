#include "engine/checkpoint/config/triptych_config.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "engine/checkpoint/config/published_fields.h"

namespace triptych::checkpoint {
namespace {

// The fields whose meaning depends on the attention kind.
void TakeAttention(JsonFields& fields, ModelConfig& config) {
  config.attention = fields.Choice<AttentionKind>("attention");
  const int64_t heads = config.num_attention_heads;
  const bool mla = config.attention == AttentionKind::kMla;

  if (config.attention == AttentionKind::kGqa) {
    config.num_key_value_heads = fields.Int("num_key_value_heads", 1, heads);
    if (heads % config.num_key_value_heads != 0) {
      fields.Refuse("num_key_value_heads", std::to_string(config.num_key_value_heads),
                    "it must divide num_attention_heads = " + std::to_string(heads));
    }
  } else {
    config.num_key_value_heads = fields.Int("num_key_value_heads", 1, kMaxWidth, heads);
    if (config.num_key_value_heads != heads) {
      fields.Refuse("num_key_value_heads", std::to_string(config.num_key_value_heads),
                    "with attention \"" + std::string(Name(config.attention)) +
                        "\" it must equal num_attention_heads = " + std::to_string(heads));
    }
  }

  config.head_grouping = fields.Choice<HeadGrouping>("head_grouping", "modular");

  for (const char* field : {"kv_lora_rank", "qk_rope_head_dim", "v_head_dim", "kv_a_layernorm",
                            "q_lora_rank", "latent_norm_eps", "latent_bias"}) {
    if (!mla && fields.Has(field)) {
      fields.RefuseValue(field, fields.Take(field, nullptr),
                         "allowed only with attention \"mla\", not \"" +
                             std::string(Name(config.attention)) + "\"");
    }
  }
  config.qk_norm = fields.Bool("qk_norm", false);
  if (mla && config.qk_norm) {
    fields.Refuse("qk_norm", "true", "allowed only with attention \"mha\" or \"gqa\"");
  }
  config.attention_score_factor = fields.PositiveNumber("attention_score_factor", kMaxFactor, 1.0);
  config.scale_attn_by_inverse_layer_idx = fields.Bool("scale_attn_by_inverse_layer_idx", false);
  if (!mla) return;

  const Json rank = fields.Take("kv_lora_rank", nullptr);
  if (rank.is_array()) {
    if (static_cast<int64_t>(rank.size()) != config.num_hidden_layers) {
      fields.RefuseValue("kv_lora_rank", rank,
                         "a list must hold one rank for each of num_hidden_layers = " +
                             std::to_string(config.num_hidden_layers));
    }
    for (const Json& r : rank) {
      config.kv_lora_rank.push_back(fields.CheckedInt("kv_lora_rank", r, 1, kMaxWidth));
    }
  } else {
    config.kv_lora_rank.assign(config.num_hidden_layers,
                               fields.CheckedInt("kv_lora_rank", rank, 1, kMaxWidth));
  }
  config.qk_rope_head_dim = fields.Int("qk_rope_head_dim", 0, kMaxWidth, 0);
  config.v_head_dim = fields.Int("v_head_dim", 0, kMaxWidth, 0);
  config.kv_a_layernorm = fields.Bool("kv_a_layernorm", false);
  config.q_lora_rank = fields.Int("q_lora_rank", 0, kMaxWidth, 0);
  config.latent_bias = fields.Bool("latent_bias", false);
  if (fields.Has("latent_norm_eps")) {
    config.latent_norm_eps = fields.PositiveNumber("latent_norm_eps", 1.0);
  }
}

void TakePositions(JsonFields& fields, ModelConfig& config) {
  config.position_embedding = fields.Choice<PositionEmbedding>("position_embedding");
  const bool mla = config.attention == AttentionKind::kMla;
  const bool rope = config.position_embedding == PositionEmbedding::kRope;
  for (const char* field :
       {"rope_theta", "rope_interleave", "rope_factors", "rope_attention_factor"}) {
    if (!rope && fields.Has(field)) {
      fields.RefuseValue(field, fields.Take(field, nullptr),
                         "allowed only with position_embedding \"rope\"");
    }
  }
  config.rope_theta = fields.PositiveNumber("rope_theta", kMaxRopeTheta, 10000.0);
  config.rope_interleave = fields.Bool("rope_interleave", true);
  if (config.position_embedding == PositionEmbedding::kSinusoidal && config.hidden_size % 2 != 0) {
    fields.Refuse("hidden_size", std::to_string(config.hidden_size),
                  "it must be even with sinusoidal positions");
  }
  if (rope && !mla && config.head_dim % 2 != 0) {
    fields.Refuse("head_dim", std::to_string(config.head_dim),
                  "it must be even with rotary positions");
  }
  if (!mla) return;
  const std::string width = std::to_string(config.qk_rope_head_dim);
  if (rope && (config.qk_rope_head_dim == 0 || config.qk_rope_head_dim % 2 != 0)) {
    fields.Refuse("qk_rope_head_dim", width,
                  "with attention \"mla\" rotary positions need decoupled keys of an even width of "
                  "at least 2, because rotating the keys themselves would break the reduction");
  }
  if (!rope && config.qk_rope_head_dim != 0) {
    fields.Refuse("qk_rope_head_dim", width, "it must be 0 unless position_embedding is \"rope\"");
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
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  const auto is_text = [&](const Json& text) {
    if (!text.is_object() || text.size() != 2) return false;
    const Json sha256 = text.value("sha256", Json()), held_out = text.value("held_out", Json());
    if (!sha256.is_string() || !held_out.is_number()) return false;
    const std::string digits = sha256.get<std::string>();
    return digits.size() == 64 && std::all_of(digits.begin(), digits.end(), is_digit) &&
           held_out.get<double>() >= 0 && held_out.get<double>() < 1;
  };
  if (!texts.is_array() || texts.size() > kMaxTrainingTexts ||
      !std::all_of(texts.begin(), texts.end(), is_text)) {
    fields.RefuseValue(kField, texts,
                       "allowed: a list of at most " + std::to_string(kMaxTrainingTexts) +
                           " of {\"sha256\": 64 digits 0 to f, \"held_out\": from 0 to less "
                           "than 1}");
  }
  for (const Json& text : texts) {
    const TrainingText known{text["sha256"].get<std::string>(), text["held_out"].get<double>()};
    for (const TrainingText& other : config.training_texts) {
      if (other.sha256 == known.sha256) fields.RefuseValue(kField, text, "it stands there twice");
    }
    config.training_texts.push_back(known);
  }
}

}  // namespace

ModelConfig ParseTriptychConfig(JsonFields& fields) {
  ModelConfig config;
  TakeSizes(fields, config);
  TakeHeadDim(fields, config);
  TakeAttention(fields, config);
  TakePositions(fields, config);
  config.rope_attention_factor = fields.PositiveNumber("rope_attention_factor", kMaxFactor, 1.0);
  if (fields.Has("rope_factors")) {
    config.rope_factors = TakeRopeFactors(fields, "rope_factors", config);
  }
  CheckPositionTables(fields, config);

  config.norm = fields.Choice<NormKind>("norm");
  config.norm_eps = fields.PositiveNumber("norm_eps", 1.0, 1e-5);
  config.norm_bias = fields.Bool("norm_bias", false);
  if (config.norm_bias && config.norm != NormKind::kLayerNorm) {
    fields.Refuse("norm_bias", "true", "allowed only with norm \"layer_norm\"");
  }
  config.mlp = fields.Choice<MlpKind>("mlp");
  const bool swiglu = config.mlp == MlpKind::kSwiglu;
  config.hidden_act = fields.Choice<HiddenAct>("hidden_act", swiglu ? "silu" : "gelu");
  if (swiglu != (config.hidden_act == HiddenAct::kSilu)) {
    fields.Refuse(
        "hidden_act", '"' + std::string(Name(config.hidden_act)) + '"',
        swiglu ? "mlp \"swiglu\" allows \"silu\"" : "mlp \"gelu\" allows \"gelu\", \"gelu_exact\"");
  }
  config.mlp_bias = fields.Bool("mlp_bias", false);
  config.attention_bias = fields.Bool("attention_bias", false);
  if (fields.Has("attention_output_bias")) {
    config.attention_output_bias = fields.Bool("attention_output_bias", false);
  }
  config.embedding_multiplier = fields.PositiveNumber("embedding_multiplier", kMaxFactor, 1.0);
  config.logit_multiplier = fields.PositiveNumber("logit_multiplier", kMaxFactor, 1.0);
  config.tie_word_embeddings = fields.Bool("tie_word_embeddings", false);
  config.torch_dtype = fields.Choice<TensorFormat>("torch_dtype");
  TakeQuantization(fields, config);
  TakeTrainingTexts(fields, config);
  return config;
}

}  // namespace triptych::checkpoint
