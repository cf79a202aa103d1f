#include "engine/checkpoint/config/gpt2_family.h"

#include <cmath>
#include <string>

#include "engine/checkpoint/config/published_fields.h"
#include "engine/model/tensor_names.h"
#include "engine/model/validate_config.h"

namespace triptych::checkpoint {
namespace {

constexpr const char* kChangeNothingInGpt2[] = {
    "attn_pdrop",
    "embd_pdrop",
    "n_ctx",
    "n_special",
    "predict_special_tokens",
    "reorder_and_upcast_attn",
    "resid_pdrop",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
};

}  // namespace

ModelConfig ParseGpt2Config(JsonFields& fields) {
  IgnoreWhatChangesNothing(fields);
  for (const char* field : kChangeNothingInGpt2) fields.Ignore(field);
  ModelConfig config;
  config.vocab_size = fields.Int("vocab_size", config_limits::kVocabulary);
  config.hidden_size = fields.Int("n_embd", config_limits::kWidth);
  config.num_hidden_layers = fields.Int("n_layer", config_limits::kLayers);
  config.num_attention_heads = fields.Int("n_head", config_limits::kWidth);
  config.max_position_embeddings = fields.Int("n_positions", config_limits::kPositions);
  config.intermediate_size = fields.Int("n_inner", config_limits::kWidth, 4 * config.hidden_size);
  if (config.hidden_size % config.num_attention_heads != 0) {
    fields.Refuse("n_head", std::to_string(config.num_attention_heads),
                  "it must divide n_embd = " + std::to_string(config.hidden_size));
  }
  config.attention = AttentionKind::kMha;
  config.num_key_value_heads = config.num_attention_heads;
  config.head_dim = config.hidden_size / config.num_attention_heads;
  config.position_embedding = PositionEmbedding::kLearned;
  config.norm = NormKind::kLayerNorm;
  config.norm_eps = fields.Number("layer_norm_epsilon", config_limits::kEpsilon, 1e-5);
  config.norm_bias = true;
  config.mlp = MlpKind::kGelu;
  const Json activation = fields.Take("activation_function", "gelu_new");
  if (activation == "gelu_new" || activation == "gelu_pytorch_tanh") {
    config.hidden_act = HiddenAct::kGelu;
  } else if (activation == "gelu") {
    config.hidden_act = HiddenAct::kGeluExact;
  } else {
    fields.RefuseUnsupported("activation_function", activation,
                             "\"gelu_new\", \"gelu_pytorch_tanh\", \"gelu\"");
  }
  config.mlp_bias = true;
  config.attention_bias = true;
  if (!fields.Bool("scale_attn_weights", true)) {
    config.attention_score_factor = std::sqrt(static_cast<double>(config.head_dim));
  }
  config.scale_attn_by_inverse_layer_idx = fields.Bool("scale_attn_by_inverse_layer_idx", false);
  config.tie_word_embeddings = fields.Bool("tie_word_embeddings", true);
  TakeDtype(fields, config);
  return config;
}

TensorMap Gpt2Tensors(const ModelConfig& config, const TensorSource& published) {
  TensorMap map;
  const std::string prefix = published.Find("transformer.wte.weight") ? "transformer." : "";
  const auto add = [&](const std::string& name, TensorOrigin origin) {
    origin.tensor = prefix + origin.tensor;
    map.origins.emplace(name, std::move(origin));
  };
  const int64_t width = config.hidden_size;
  // A matrix and its bias, or the rows of queries, keys or values in both.
  const auto add_linear = [&](const std::string& name, const std::string& from, int64_t first_row,
                              std::optional<int64_t> rows) {
    const std::optional<int64_t> of_rows = rows ? std::optional(3 * width) : std::nullopt;
    add(name + ".weight", {from + ".weight", /*transposed=*/true, first_row, rows, of_rows});
    add(name + ".bias", {from + ".bias", /*transposed=*/false, first_row, rows, of_rows});
  };
  const auto add_norm = [&](const std::string& name, const std::string& from) {
    for (const char* part : {".weight", ".bias"}) add(name + part, {.tensor = from + part});
  };
  add("model.embed_tokens.weight", {.tensor = "wte.weight"});
  add("model.embed_positions.weight", {.tensor = "wpe.weight"});
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string to = LayerPrefix(layer);
    const std::string from = "h." + std::to_string(layer) + ".";
    add_norm(to + "input_layernorm", from + "ln_1");
    add_linear(to + "self_attn.q_proj", from + "attn.c_attn", 0, width);
    add_linear(to + "self_attn.k_proj", from + "attn.c_attn", width, width);
    add_linear(to + "self_attn.v_proj", from + "attn.c_attn", 2 * width, width);
    add_linear(to + "self_attn.o_proj", from + "attn.c_proj", 0, {});
    add_norm(to + "post_attention_layernorm", from + "ln_2");
    add_linear(to + "mlp.up_proj", from + "mlp.c_fc", 0, {});
    add_linear(to + "mlp.down_proj", from + "mlp.c_proj", 0, {});
    // Causal masks are stored with the weights.
    for (const char* mask : {"attn.bias", "attn.masked_bias"}) {
      map.left_out.push_back(prefix + from + mask);
    }
  }
  add_norm("model.norm", "ln_f");
  if (config.tie_word_embeddings) map.left_out.push_back("lm_head.weight");
  return map;
}

}  // namespace triptych::checkpoint
