#include "engine/model/config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <utility>

#include "engine/base/file.h"

namespace triptych {
namespace {

using Json = nlohmann::json;

// Takes fields out of a JSON object one by one, so that what is left over is unknown.
class Fields {
 public:
  Fields(Json object, std::string source)
      : object_(std::move(object)), source_(std::move(source)) {}

  [[noreturn]] void Refuse(const std::string& field, const std::string& value,
                           const std::string& allowed) const {
    throw LoadError(source_ + ": " + field + " is " + value + "; " + allowed);
  }

  bool Has(const std::string& field) const { return object_.contains(field); }

  // Absent fields give `fallback`, or are refused where there is none.
  Json Take(const std::string& field, const Json& fallback) {
    const auto it = object_.find(field);
    if (it == object_.end()) {
      if (fallback.is_null()) throw LoadError(source_ + ": " + field + " is missing");
      return fallback;
    }
    Json value = *it;
    object_.erase(it);
    return value;
  }

  int64_t Int(const std::string& field, int64_t min, int64_t max, const Json& fallback = nullptr) {
    return CheckedInt(field, Take(field, fallback), min, max);
  }

  int64_t CheckedInt(const std::string& field, const Json& value, int64_t min, int64_t max) const {
    const std::string allowed =
        "allowed: an integer from " + std::to_string(min) + " to " + std::to_string(max);
    if (!value.is_number_integer()) Refuse(field, value.dump(), allowed);
    // Unsigned values beyond int64 would wrap.
    if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(max)) {
      Refuse(field, value.dump(), allowed);
    }
    const auto number = value.get<int64_t>();
    if (number < min || number > max) Refuse(field, value.dump(), allowed);
    return number;
  }

  double PositiveNumber(const std::string& field, double max, double fallback) {
    const Json value = Take(field, fallback);
    if (!value.is_number() || !(value.get<double>() > 0) || value.get<double>() > max) {
      std::ostringstream allowed;
      allowed << "allowed: a number above 0 and at most " << max;
      Refuse(field, value.dump(), allowed.str());
    }
    return value.get<double>();
  }

  bool Bool(const std::string& field, bool fallback) {
    const Json value = Take(field, fallback);
    if (!value.is_boolean()) Refuse(field, value.dump(), "allowed: true, false");
    return value.get<bool>();
  }

  template <typename Enum>
  Enum Choice(const std::string& field, const Json& fallback = nullptr) {
    const Json value = Take(field, fallback);
    std::string allowed = "allowed:";
    for (const auto& [name, named] : Names<Enum>()) {
      if (value.is_string() && value.get_ref<const std::string&>() == name) return named;
      allowed += (allowed.back() == ':' ? " \"" : ", \"") + name + '"';
    }
    Refuse(field, value.dump(), allowed);
  }

  void RefuseLeftOver() const {
    for (const auto& [field, value] : object_.items()) {
      throw LoadError(source_ + ": " + field + " is not a field this decoder knows (value " +
                      value.dump() + ")");
    }
  }

 private:
  Json object_;
  std::string source_;
};

constexpr int64_t kMaxWidth = 1 << 20;
constexpr int kMaxDepth = 16;  // printing a value recurses as deep as it is nested

// The fields whose meaning depends on the attention kind.
void TakeAttention(Fields& fields, ModelConfig& config) {
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

  for (const char* field : {"kv_lora_rank", "qk_rope_head_dim", "kv_a_layernorm"}) {
    if (!mla && fields.Has(field)) {
      fields.Refuse(field, fields.Take(field, nullptr).dump(),
                    "allowed only with attention \"mla\", not \"" +
                        std::string(Name(config.attention)) + "\"");
    }
  }
  if (!mla) return;

  const Json rank = fields.Take("kv_lora_rank", nullptr);
  if (rank.is_array()) {
    if (static_cast<int64_t>(rank.size()) != config.num_hidden_layers) {
      fields.Refuse("kv_lora_rank", rank.dump(),
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
  config.kv_a_layernorm = fields.Bool("kv_a_layernorm", false);
}

void TakePositions(Fields& fields, ModelConfig& config) {
  config.position_embedding = fields.Choice<PositionEmbedding>("position_embedding");
  const bool mla = config.attention == AttentionKind::kMla;
  const bool rope = config.position_embedding == PositionEmbedding::kRope;
  for (const char* field : {"rope_theta", "rope_interleave"}) {
    if (!rope && fields.Has(field)) {
      fields.Refuse(field, fields.Take(field, nullptr).dump(),
                    "allowed only with position_embedding \"rope\"");
    }
  }
  config.rope_theta = fields.PositiveNumber("rope_theta", 1e12, 10000.0);
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

}  // namespace

std::string_view Name(AttentionKind kind) {
  switch (kind) {
    case AttentionKind::kMha:
      return "mha";
    case AttentionKind::kGqa:
      return "gqa";
    case AttentionKind::kMla:
      return "mla";
  }
  return {};
}

std::string_view Name(PositionEmbedding positions) {
  switch (positions) {
    case PositionEmbedding::kLearned:
      return "learned";
    case PositionEmbedding::kSinusoidal:
      return "sinusoidal";
    case PositionEmbedding::kRope:
      return "rope";
    case PositionEmbedding::kNone:
      return "none";
  }
  return {};
}

std::string_view Name(NormKind norm) {
  switch (norm) {
    case NormKind::kRmsNorm:
      return "rms_norm";
    case NormKind::kLayerNorm:
      return "layer_norm";
  }
  return {};
}

std::string_view Name(MlpKind mlp) {
  switch (mlp) {
    case MlpKind::kGelu:
      return "gelu";
    case MlpKind::kSwiglu:
      return "swiglu";
  }
  return {};
}

std::string_view Name(HiddenAct act) {
  switch (act) {
    case HiddenAct::kGelu:
      return "gelu";
    case HiddenAct::kGeluExact:
      return "gelu_exact";
    case HiddenAct::kSilu:
      return "silu";
  }
  return {};
}

std::string_view Name(HeadGrouping grouping) {
  switch (grouping) {
    case HeadGrouping::kModular:
      return "modular";
    case HeadGrouping::kContiguous:
      return "contiguous";
  }
  return {};
}

ModelConfig ParseModelConfig(std::string_view json, const std::string& source) {
  const auto check_depth = [&](int depth, Json::parse_event_t, const Json&) {
    if (depth > kMaxDepth) throw LoadError(source + ": is nested too deeply");
    return true;
  };
  Json parsed;
  try {
    parsed = Json::parse(json, check_depth);
  } catch (const Json::exception& e) {
    throw LoadError(source + ": not valid JSON: " + e.what());
  }
  if (!parsed.is_object()) throw LoadError(source + ": must hold a JSON object");
  Fields fields(std::move(parsed), source);

  const Json type = fields.Take("model_type", "triptych");
  if (type != "triptych") fields.Refuse("model_type", type.dump(), "allowed: \"triptych\"");

  ModelConfig config;
  config.vocab_size = fields.Int("vocab_size", 1, 1 << 24);
  config.hidden_size = fields.Int("hidden_size", 1, kMaxWidth);
  config.intermediate_size = fields.Int("intermediate_size", 1, kMaxWidth);
  config.num_hidden_layers = fields.Int("num_hidden_layers", 1, 1024);
  config.num_attention_heads = fields.Int("num_attention_heads", 1, kMaxWidth);
  config.max_position_embeddings = fields.Int("max_position_embeddings", 2, 1 << 24);
  if (fields.Has("head_dim")) {
    config.head_dim = fields.Int("head_dim", 1, kMaxWidth);
  } else if (config.hidden_size % config.num_attention_heads == 0) {
    config.head_dim = config.hidden_size / config.num_attention_heads;
  } else {
    fields.Refuse("num_attention_heads", std::to_string(config.num_attention_heads),
                  "it must divide hidden_size = " + std::to_string(config.hidden_size) +
                      " unless head_dim is given");
  }

  TakeAttention(fields, config);
  TakePositions(fields, config);

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
  config.tie_word_embeddings = fields.Bool("tie_word_embeddings", false);
  config.torch_dtype = fields.Choice<WeightFormat>("torch_dtype");
  fields.RefuseLeftOver();
  return config;
}

ModelConfig ReadModelConfig(const std::filesystem::path& file) {
  return ParseModelConfig(ReadText(file), file.string());
}

std::string ToJson(const ModelConfig& config) {
  nlohmann::ordered_json json;
  json["model_type"] = "triptych";
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
  return json.dump(2) + "\n";
}

int64_t CacheRowElements(const ModelConfig& config, int64_t layer) {
  if (config.attention == AttentionKind::kMla) {
    return config.kv_lora_rank.at(layer) + config.qk_rope_head_dim;
  }
  return config.num_key_value_heads * 2 * config.head_dim;
}

std::vector<int64_t> CacheRowElements(const ModelConfig& config) {
  std::vector<int64_t> elements;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    elements.push_back(CacheRowElements(config, layer));
  }
  return elements;
}

int64_t ElementsPerPosition(const ModelConfig& config) {
  const std::vector<int64_t> elements = CacheRowElements(config);
  return std::accumulate(elements.begin(), elements.end(), int64_t{0});
}

int64_t CacheRowBytes(const ModelConfig& config, int64_t layer, CacheFormat format) {
  return RowBytes(format, CacheRowElements(config, layer));
}

int64_t MhaRowElements(const ModelConfig& config) {
  return config.num_attention_heads * (config.QueryDim() + config.head_dim);
}

CacheGeometry MakeCacheGeometry(const ModelConfig& config, CacheFormat format,
                                int64_t block_positions) {
  CacheGeometry geometry{.block_positions = block_positions,
                         .row_bytes = {},
                         .mha_bytes_per_position =
                             config.num_hidden_layers * RowBytes(format, MhaRowElements(config))};
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    geometry.row_bytes.push_back(CacheRowBytes(config, layer, format));
  }
  return geometry;
}

}  // namespace triptych
