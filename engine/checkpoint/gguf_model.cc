#include "engine/checkpoint/gguf_model.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/checkpoint/gguf_experts.h"
#include "engine/checkpoint/tensors/block_formats.h"
#include "engine/checkpoint/tensors/decoded_tensors.h"
#include "engine/checkpoint/tensors/mapped_tensors.h"
#include "engine/model/tensor_names.h"
#include "engine/model/validate_config.h"

namespace triptych::checkpoint {
namespace {

constexpr const char* kArchitecture = "general.architecture";
constexpr const char* kEmbedding = "token_embd.weight";
constexpr const char* kOutput = "output.weight";
constexpr const char* kFactors = "rope_freqs.weight";
constexpr const char* kShortFactors = "rope_factors_short.weight";
constexpr const char* kLongFactors = "rope_factors_long.weight";
// Keys after "ARCHITECTURE." whose value must be the width of a head.
constexpr const char* kHeadWidths[] = {"rope.dimension_count", "attention.value_length"};

// A key after "ARCHITECTURE." and the field of config.json with the same meaning.
struct SameField {
  const char* key;
  const char* field;
  bool required = true;
};
// Keys of every architecture with rotary positions.
constexpr SameField kRotaryFields[] = {{"block_count", "num_hidden_layers"},
                                       {"context_length", "max_position_embeddings"},
                                       {"embedding_length", "hidden_size"},
                                       {"feed_forward_length", "intermediate_size"},
                                       {"attention.head_count", "num_attention_heads"},
                                       {"rope.freq_base", "rope_theta", false}};
// Without latent attention.
constexpr SameField kHeadFields[] = {{"attention.key_length", "head_dim", false}};
constexpr SameField kLlamaFields[] = {{"attention.layer_norm_rms_epsilon", "rms_norm_eps"}};
constexpr SameField kGemma2Fields[] = {
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    {"attention.sliding_window", "sliding_window", false},
    {"attn_logit_softcapping", "attn_logit_softcapping", false},
    {"final_logit_softcapping", "final_logit_softcapping", false}};
constexpr SameField kGemma3Fields[] = {
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    {"attention.sliding_window", "sliding_window", false},
    {"final_logit_softcapping", "final_logit_softcapping", false},
    {"rope.freq_base_swa", "rope_local_base_freq", false}};
constexpr SameField kGraniteFields[] = {{"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
                                        {"attention.scale", "attention_multiplier"},
                                        {"embedding_scale", "embedding_multiplier", false},
                                        {"logit_scale", "logits_scaling", false},
                                        {"residual_scale", "residual_multiplier", false}};
constexpr SameField kCohereFields[] = {{"attention.layer_norm_epsilon", "layer_norm_eps"},
                                       {"logit_scale", "logit_scale"}};
constexpr SameField kStarcoder2Fields[] = {{"attention.layer_norm_epsilon", "norm_epsilon"}};
constexpr SameField kGpt2Fields[] = {
    {"block_count", "n_layer"},         {"context_length", "n_positions"},
    {"embedding_length", "n_embd"},     {"feed_forward_length", "n_inner"},
    {"attention.head_count", "n_head"}, {"attention.layer_norm_epsilon", "layer_norm_epsilon"}};

struct Architecture {
  const char* name;
  std::span<const SameField> fields;  // besides kRotaryFields
  const char* family;                 // in config.json
  bool rotates = true;
  // Converters to GGUF permute the rows of queries and keys: rotary pairs are (2i, 2i + 1), unlike
  // in the published files.
  bool interleaves = false;
  const char* bias = "attention_bias";   // the family's field
  const char* experts_family = nullptr;  // the family of a file with experts; null: none has them
  bool latent = false;                   // attention
};
constexpr Architecture kArchitectures[] = {
    {"llama", kLlamaFields, "llama", true, true, "attention_bias", "mixtral"},
    {"qwen2", kLlamaFields, "qwen2"},
    {"qwen2moe", kLlamaFields, "qwen2_moe", true, false, "qkv_bias", "qwen2_moe"},
    {"qwen3", kLlamaFields, "qwen3"},
    {"qwen3moe", kLlamaFields, "qwen3_moe", true, false, "attention_bias", "qwen3_moe"},
    {"deepseek2", kLlamaFields, "deepseek_v2", true, false, "attention_bias", nullptr, true},
    {"minicpm3", kLlamaFields, "minicpm3", true, false, "attention_bias", nullptr, true},
    {"plm", kLlamaFields, "plm", true, false, "attention_bias", nullptr, true},
    {"command-r", kCohereFields, "cohere"},
    {"gemma", kLlamaFields, "gemma"},  // its norms are stored plus 1
    {"gemma2", kGemma2Fields, "gemma2"},
    {"gemma3", kGemma3Fields, "gemma3_text"},
    {"granite", kGraniteFields, "granite", true, true},
    {"granitemoe", kGraniteFields, "granitemoe", true, true, "attention_bias", "granitemoe"},
    {"olmo2", kLlamaFields, "olmo2"},
    {"olmoe", kLlamaFields, "olmoe", true, false, "attention_bias", "olmoe"},
    {"smollm3", kLlamaFields, "smollm3", true, true},
    {"starcoder2", kStarcoder2Fields, "starcoder2", true, false, "use_bias"},
    {"gpt2", kGpt2Fields, "gpt2", false}};

const Architecture& ArchitectureOf(const GgufFile& file) {
  const auto found = file.metadata().find(kArchitecture);
  std::string supported = "supported:";
  for (const Architecture& known : kArchitectures) {
    if (found != file.metadata().end() && *found == known.name) return known;
    supported += (supported.back() == ':' ? " \"" : ", \"") + std::string(known.name) + '"';
  }
  throw LoadError(file.name() + ": " + kArchitecture + " is " +
                  (found == file.metadata().end() ? "missing" : ShownJson(*found)) + "; " +
                  supported);
}

int64_t RowsOf(const GgufFile& file, const char* tensor) {
  const StoredTensor* const stored = file.Find(tensor);
  if (stored == nullptr) throw LoadError(file.name() + ": tensor " + tensor + " is missing");
  return stored->shape.empty() ? 1 : stored->shape.front();
}

bool HasLayerTensor(const GgufFile& file, const std::string& name) {
  return file.Find("blk.0." + name) != nullptr;
}

// The family's name of the dtype of most bytes; bfloat16 for blocks of integers.
const char* DtypeOf(const GgufFile& file) {
  std::map<std::string, uint64_t> bytes;
  for (const std::string& name : file.TensorNames()) {
    const StoredTensor& stored = *file.Find(name);
    bytes[stored.dtype] += stored.bytes;
  }
  const auto most = std::max_element(
      bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == bytes.end() || most->first == "F32") return "float32";
  return most->first == "F16" ? "float16" : "bfloat16";
}

WeightFormat NearestFormat(const std::string& dtype) {
  if (dtype == "F32") return WeightFormat::kFloat32;
  const BlockFormat* const blocks = FindBlockFormat(dtype);
  if (blocks == nullptr) return WeightFormat::kBFloat16;
  return blocks->bits <= 4 ? WeightFormat::kInt4 : WeightFormat::kInt8;
}

WeightFormat MostOf(const std::map<WeightFormat, int64_t>& weights) {
  return std::max_element(weights.begin(), weights.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

// The formats nearest to those of a file's matrices, if some are in blocks of integers. All layers
// are served in one format: that of most of their weights. So are all experts, which are matrices
// of tensors with three dimensions. The embedding and the output matrix have the wider of theirs.
std::optional<WeightFormats> NearestFormats(const GgufFile& file) {
  std::map<WeightFormat, int64_t> weights, experts;
  std::optional<WeightFormat> embeddings;
  for (const std::string& name : file.TensorNames()) {
    const StoredTensor& stored = *file.Find(name);
    const WeightFormat format = NearestFormat(stored.dtype);
    if (name.find("_exps.") != name.npos) {
      experts[format] += std::accumulate(stored.shape.begin(), stored.shape.end(), int64_t{1},
                                         std::multiplies<>());
    }
    if (stored.shape.size() != 2) continue;
    if (name.starts_with("blk.")) weights[format] += stored.shape[0] * stored.shape[1];
    if (name == kEmbedding || name == kOutput) {
      embeddings = std::min(embeddings.value_or(format), format);  // wider formats are first
    }
  }
  if (weights.empty() || !embeddings) return std::nullopt;
  const WeightFormat layers = MostOf(weights);
  const WeightFormats nearest = {layers, *embeddings, experts.empty() ? layers : MostOf(experts)};
  if (!IsInteger(nearest.layers) && !IsInteger(nearest.embeddings) && !IsInteger(nearest.experts)) {
    return std::nullopt;
  }
  return nearest;
}

// The keys that begin with `prefix`.
Json KeysOf(const Json& metadata, const std::string& prefix) {
  Json own = Json::object();
  for (const auto& [key, value] : metadata.items()) {
    if (key.starts_with(prefix)) own.emplace(key, value);
  }
  return own;
}

// The rope_scaling of a config; null if there is none.
Json TakeScaling(JsonFields& keys, const std::string& prefix) {
  const std::string scaling = prefix + "rope.scaling.";
  const std::string type_key = scaling + "type";
  keys.Ignore(scaling + "finetuned");  // a note about training
  const Json old_name = keys.Take(prefix + "rope.scale_linear", 1.0);
  const Json factor = keys.Take(scaling + "factor", old_name);
  const Json type = keys.Take(type_key, "linear");
  if (type == "none" || (type == "linear" && (factor == 0 || factor == 1))) return Json();
  if (type == "linear") return {{"rope_type", type}, {"factor", factor}};
  if (type != "yarn") {
    keys.RefuseValue(type_key, type, "supported: \"none\", \"linear\", \"yarn\"");
  }
  Json yarn = {{"rope_type", type}, {"factor", factor}};
  const std::string original = scaling + "original_context_length";
  if (keys.Has(original)) yarn["original_max_position_embeddings"] = keys.Take(original, nullptr);
  for (const char* beta : {"beta_fast", "beta_slow"}) {
    const std::string key = scaling + "yarn_" + beta;
    if (keys.Has(key)) yarn[beta] = keys.Take(key, nullptr);
  }
  return yarn;
}

// The divisors of the frequencies of rotary pairs, from a tensor. REQUIRES: it is there.
std::vector<float> ReadFactors(const GgufFile& file, const char* tensor, int64_t pairs) {
  const StoredTensor& stored = *file.Find(tensor);
  const std::string where = file.name() + ": tensor " + tensor;
  if (stored.dtype != "F32" || stored.shape != std::vector<int64_t>{pairs}) {
    throw LoadError(where + " is " + stored.dtype + " of shape " + ShapeText(stored.shape) +
                    "; allowed: F32 of shape [" + std::to_string(pairs) + "]");
  }
  std::vector<float> factors(static_cast<size_t>(pairs));
  file.Read(tensor, std::as_writable_bytes(std::span(factors)));
  for (const float factor : factors) {
    if (!(factor >= 1e-6F && factor <= 1e6F)) {
      throw LoadError(where + " holds " + std::to_string(factor) +
                      "; allowed: numbers from 1e-6 to 1e6");
    }
  }
  return factors;
}

void TakeFactors(const GgufFile& file, ModelConfig& config) {
  if (file.Find(kFactors) == nullptr || config.RotaryDim() == 0) return;
  const std::vector<float> factors = ReadFactors(file, kFactors, config.RotaryDim() / 2);
  config.rope_factors.resize(factors.size(), 1.0);
  for (size_t i = 0; i < factors.size(); ++i) config.rope_factors[i] *= factors[i];
}

// Both lists of factors become longrope. REQUIRES: config has qk_rope_head_dim.
void TakeLongFactors(const GgufFile& file, Json& config) {
  if (file.Find(kShortFactors) == nullptr || file.Find(kLongFactors) == nullptr) return;
  const int64_t pairs = config["qk_rope_head_dim"].get<int64_t>() / 2;
  config["rope_scaling"] = {{"rope_type", "longrope"},
                            {"short_factor", ReadFactors(file, kShortFactors, pairs)},
                            {"long_factor", ReadFactors(file, kLongFactors, pairs)}};
}

using OwnName = std::pair<const char*, const char*>;  // in GGUF, in the engine
constexpr OwnName kNames[] = {{"token_embd", "model.embed_tokens"},
                              {"position_embd", "model.embed_positions"},
                              {"output_norm", "model.norm"},
                              {"output", "lm_head"}};
constexpr OwnName kLayerNames[] = {
    {"attn_norm", "input_layernorm"},       {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},         {"attn_v", "self_attn.v_proj"},
    {"attn_q_norm", "self_attn.q_norm"},    {"attn_k_norm", "self_attn.k_norm"},
    {"attn_q_a", "self_attn.q_a_proj"},     {"attn_q_a_norm", "self_attn.q_a_layernorm"},
    {"attn_q_b", "self_attn.q_b_proj"},     {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
    {"attn_kv_b", "self_attn.kv_b_proj"},   {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
    {"attn_output", "self_attn.o_proj"},    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},          {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},          {"post_attention_norm", "post_self_attn_layernorm"},
    {"post_ffw_norm", "post_mlp_layernorm"}};
constexpr const char* kFused = "attn_qkv";

// The largest models of Gemma 2 and 3, by their layers, scale scores by the width of a query in an
// unprojected stream, the others by that of a head.
void AddGemmaConstants(Json& config) {
  constexpr int64_t kLargestGemma2 = 46, kLargestGemma3 = 62;
  const auto whole = [&](const char* field) {
    return config.contains(field) ? WholeNumber(config[field]).value_or(0) : 0;
  };
  const int64_t layers = whole("num_hidden_layers"), heads = whole("num_attention_heads");
  const bool gemma2 = config["model_type"] == "gemma2";
  const bool largest = layers == (gemma2 ? kLargestGemma2 : kLargestGemma3) && heads > 0;
  const int64_t scalar = largest ? whole("hidden_size") / heads : whole("head_dim");
  if (scalar > 0) config["query_pre_attn_scalar"] = scalar;
  if (!gemma2 && !config.contains("rope_theta")) config["rope_theta"] = 1e6;
}

}  // namespace

JsonFields GgufConfigFields(const GgufFile& file) {
  const Architecture& architecture = ArchitectureOf(file);
  const std::string prefix = std::string(architecture.name) + ".";
  JsonFields keys(KeysOf(file.metadata(), prefix), file.name());
  const bool experts = architecture.experts_family != nullptr && HasGgufExperts(file, prefix);
  Json config = {{"model_type", experts ? architecture.experts_family : architecture.family},
                 {"vocab_size", RowsOf(file, kEmbedding)},
                 {"tie_word_embeddings", file.Find(kOutput) == nullptr},
                 {"torch_dtype", DtypeOf(file)}};
  std::map<std::string, std::string> names = {
      {"vocab_size", std::string("the number of rows of ") + kEmbedding},
      {"rope_scaling", prefix + "rope.scaling"}};
  const auto take = [&](std::span<const SameField> fields) {
    for (const auto& [key, field, required] : fields) {
      names.emplace(field, prefix + key);
      if (required || keys.Has(prefix + key)) config[field] = keys.Take(prefix + key, nullptr);
    }
  };
  if (architecture.rotates) take(kRotaryFields);
  if (architecture.rotates && !architecture.latent) take(kHeadFields);
  take(architecture.fields);
  const std::string groups = prefix + "attention.head_count_kv";
  if (architecture.rotates) {
    if (!architecture.latent) {
      names.emplace("num_key_value_heads", groups);
      config["num_key_value_heads"] = keys.Take(groups, config["num_attention_heads"]);
    }
    // In other architectures this is a note about training; here false means no rotation.
    if (std::string_view(architecture.name).starts_with("granite")) {
      keys.Only(prefix + "rope.scaling.finetuned", true);
    }
    if (Json scaling = TakeScaling(keys, prefix); !scaling.is_null()) {
      config["rope_scaling"] = std::move(scaling);
    }
    if (architecture.latent) {
      TakeGgufLatents(file, keys, prefix, config, names);
      TakeLongFactors(file, config);
    } else if (experts) {
      TakeGgufExperts(keys, prefix, config, names);
    }
    config[architecture.bias] =
        HasLayerTensor(file, "attn_q.bias") || HasLayerTensor(file, "attn_qkv.bias");
    if (HasLayerTensor(file, "ffn_up.bias") && !config.contains("use_bias")) {
      config["mlp_bias"] = true;
    }
  } else {
    keys.Only(groups, config["n_head"]);
  }
  // Constants of the published models, which their GGUF files do not have.
  if (architecture.name == std::string_view("starcoder2")) config["sliding_window"] = 4096;
  if (architecture.fields.data() == kGemma2Fields || architecture.fields.data() == kGemma3Fields) {
    AddGemmaConstants(config);
  }
  for (const char* count : {"expert_count", "expert_used_count"}) keys.Only(prefix + count, 0);
  // ReadGgufConfig compares the widths; tensors give the vocabulary; the layout is a note.
  for (const char* width : kHeadWidths) keys.Ignore(prefix + width);
  for (const char* known : {"vocab_size", "tensor_data_layout"}) keys.Ignore(prefix + known);
  keys.RefuseLeftOver();
  return JsonFields(std::move(config), file.name(), std::move(names));
}

PublishedConfig ReadGgufConfig(const GgufFile& file) {
  const Architecture& architecture = ArchitectureOf(file);
  JsonFields fields = GgufConfigFields(file);
  PublishedConfig published = TakePublishedConfig(fields);
  ModelConfig& config = published.config;
  for (const char* width : kHeadWidths) {
    const std::string key = std::string(architecture.name) + "." + width;
    const auto found = file.metadata().find(key);
    if (architecture.latent || found == file.metadata().end() || *found == config.head_dim) {
      continue;
    }
    throw LoadError(file.name() + ": " + key + " is " + ShownJson(*found) +
                    "; supported: " + std::to_string(config.head_dim) + ", the width of a head");
  }
  TakeFactors(file, config);
  config.served_formats = NearestFormats(file);
  if (architecture.interleaves) config.rope_interleave = true;
  const bool output_bias = HasLayerTensor(file, "attn_output.bias");
  if (architecture.rotates && output_bias != config.OutputBias()) {
    config.attention_output_bias = output_bias;
  }
  ConfigOrigin origin = OriginOf(*published.family, fields);
  if (file.Find(kFactors) != nullptr) {
    origin.names["rope_factors"] = std::string("rope_factors (from tensor ") + kFactors + ")";
  }
  Validate(config, origin);
  return published;
}

std::unique_ptr<const TensorSource> MapGgufTensors(std::shared_ptr<const GgufFile> file,
                                                   const ModelConfig& config) {
  std::map<std::string, TensorOrigin> origins;
  const int64_t query_rows = config.num_attention_heads * config.head_dim;
  const int64_t key_rows = config.num_key_value_heads * config.head_dim;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (!config.HasExperts(layer)) continue;
    AddGgufExperts(*file, config, "blk." + std::to_string(layer) + ".", LayerPrefix(layer),
                   origins);
  }
  for (const std::string part : {".weight", ".bias"}) {
    for (const auto& [here, there] : kNames) origins[there + part] = {.tensor = here + part};
    for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
      const std::string from = "blk." + std::to_string(layer) + ".";
      const std::string to = LayerPrefix(layer);
      for (const auto& [here, there] : kLayerNames) {
        origins[to + there + part] = {.tensor = from + here + part};
      }
      const std::string fused = from + kFused + part;
      if (file->Find(fused) == nullptr) continue;
      int64_t first = 0;
      for (const auto& [there, rows] : {std::pair{"self_attn.q_proj", query_rows},
                                        {"self_attn.k_proj", key_rows},
                                        {"self_attn.v_proj", key_rows}}) {
        origins[to + there + part] = {.tensor = fused,
                                      .first_row = first,
                                      .rows = rows,
                                      .of_rows = query_rows + 2 * key_rows};
        first += rows;
      }
    }
  }
  std::vector<std::string> left_out{kFactors};
  std::shared_ptr<const TensorSource> numbers = DecodeBlockTensors(std::move(file));
  if (config.attention == AttentionKind::kMla) {
    left_out.insert(left_out.end(), {kShortFactors, kLongFactors});
    numbers = JoinGgufLatents(std::move(numbers), config);
  }
  return std::make_unique<const MappedTensors>(std::move(numbers), std::move(origins), left_out);
}

}  // namespace triptych::checkpoint
