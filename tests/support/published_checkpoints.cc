#include "tests/support/published_checkpoints.h"

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdio>
#include <stdexcept>
#include <utility>

#include "engine/checkpoint/tensors/safetensors.h"
#include "tests/support/published_configs.h"
#include "tests/support/published_experts.h"
#include "tests/support/published_variants.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tensors.h"

namespace triptych::published {
namespace {

bool Flag(const Json& config, const char* field) { return config.value(field, false); }

// Makes a family's tensors: names and random values.
class Maker {
 public:
  Maker(uint64_t seed, at::ScalarType dtype) : normal_(seed), dtype_(dtype) {}

  // [out, in], as torch.nn.Linear has it.
  void Linear(const std::string& name, int64_t out, int64_t in, bool bias = false) {
    Put(name + ".weight", normal_.Weight(out, in));
    if (bias) Bias(name, out);
  }
  // [count, out, in]
  void Joined(const std::string& name, int64_t count, int64_t out, int64_t in) {
    std::vector<at::Tensor> matrices;
    for (int64_t i = 0; i < count; ++i) matrices.push_back(normal_.Weight(out, in));
    Put(name, at::stack(matrices));
  }
  // Numbers about 0 that move scores between 0 and 1.
  void Correction(const std::string& name, int64_t count) {
    Put(name, normal_.Tensor({count}, 0.1));
  }
  // [in, out], as GPT-2's Conv1D has it.
  void Transposed(const std::string& name, int64_t in, int64_t out) {
    Put(name + ".weight", normal_.Weight(out, in).t());
    Bias(name, out);
  }
  void Norm(const std::string& name, int64_t width, bool bias = false) {
    Put(name + ".weight", normal_.Tensor({width}, 0.3) + 1);
    if (bias) Bias(name, width);
  }

  // Gemma's: less 1, in numbers whose sums with 1 are exact in every dtype.
  void NormLessOne(const std::string& name, int64_t width) {
    Put(name + ".weight", (normal_.Tensor({width}, 0.3) * 64).round() / 64);
  }

  Tensors Finish() { return std::move(tensors_); }

 private:
  void Bias(const std::string& name, int64_t width) {
    Put(name + ".bias", normal_.Tensor({width}, 0.3));
  }
  void Put(const std::string& name, const at::Tensor& tensor) {
    tensors_[name] = tensor.to(dtype_).contiguous();
  }

  Normal normal_;
  const at::ScalarType dtype_;
  Tensors tensors_;
};

void MakeGated(const std::string& mlp, int64_t inner, int64_t width, Maker& maker) {
  maker.Linear(mlp + "gate_proj", inner, width);
  maker.Linear(mlp + "up_proj", inner, width);
  maker.Linear(mlp + "down_proj", width, inner);
}

// The experts of a layer, whose tensors' names begin with `layer`.
void MakeExperts(const Json& config, const std::string& layer, int64_t count, Maker& maker) {
  const std::string family = config.at("model_type");
  const int64_t width = config.at("hidden_size");
  const int64_t inner = config.value("moe_intermediate_size", config.at("intermediate_size"));
  const std::string block = layer + "block_sparse_moe.";
  if (family == "granitemoe") {
    maker.Linear(block + "router.layer", count, width);
    maker.Joined(block + "input_linear.weight", count, 2 * inner, width);
    maker.Joined(block + "output_linear.weight", count, width, inner);
    return;
  }
  if (family == "mixtral") {
    maker.Linear(block + "gate", count, width);
    for (int64_t i = 0; i < count; ++i) {
      const std::string expert = block + "experts." + std::to_string(i) + ".";
      maker.Linear(expert + "w1", inner, width);
      maker.Linear(expert + "w2", width, inner);
      maker.Linear(expert + "w3", inner, width);
    }
    return;
  }
  const std::string mlp = layer + "mlp.";
  maker.Linear(mlp + "gate", count, width);
  for (int64_t i = 0; i < count; ++i) {
    MakeGated(mlp + "experts." + std::to_string(i) + ".", inner, width, maker);
  }
  if (family == "deepseek_v3" || family == "kimi_k2" || family == "glm4_moe_lite") {
    maker.Correction(mlp + "gate.e_score_correction_bias", count);
  }
  const Json shared = config.value("n_shared_experts", Json());
  if (!shared.is_null() && shared != 0) {
    MakeGated(mlp + "shared_experts.", shared.get<int64_t>() * inner, width, maker);
  }
  if (family == "qwen2_moe") {
    MakeGated(mlp + "shared_expert.", config.at("shared_expert_intermediate_size"), width, maker);
    maker.Linear(mlp + "shared_expert_gate", 1, width);
  }
}

void MakeGpt2(const Json& config, Maker& maker) {
  const int64_t width = config.at("n_embd");
  const Json inner = config.value("n_inner", Json());
  const int64_t inner_width = inner.is_null() ? 4 * width : inner.get<int64_t>();
  const int64_t vocab = config.at("vocab_size");
  const int64_t layers = config.at("n_layer");
  maker.Linear("wte", vocab, width);
  maker.Linear("wpe", config.at("n_positions"), width);
  for (int64_t layer = 0; layer < layers; ++layer) {
    const std::string block = "h." + std::to_string(layer) + ".";
    maker.Norm(block + "ln_1", width, true);
    maker.Transposed(block + "attn.c_attn", width, 3 * width);
    maker.Transposed(block + "attn.c_proj", width, width);
    maker.Norm(block + "ln_2", width, true);
    maker.Transposed(block + "mlp.c_fc", width, inner_width);
    maker.Transposed(block + "mlp.c_proj", inner_width, width);
  }
  maker.Norm("ln_f", width, true);
  if (!config.value("tie_word_embeddings", true)) maker.Linear("lm_head", vocab, width);
}

void MakeGroupedAttention(const Json& config, const std::string& self, Maker& maker) {
  const std::string family = config.at("model_type");
  const int64_t width = config.at("hidden_size");
  const int64_t heads = config.at("num_attention_heads");
  const int64_t groups = config.value("num_key_value_heads", heads);
  const int64_t d = config.value("head_dim", width / heads);
  const bool any_bias = Flag(config, "attention_bias");
  const bool input_bias =
      any_bias || family == "qwen2" || (family == "qwen2_moe" && config.value("qkv_bias", true));
  maker.Linear(self + "q_proj", heads * d, width, input_bias);
  maker.Linear(self + "k_proj", groups * d, width, input_bias);
  maker.Linear(self + "v_proj", groups * d, width, input_bias);
  maker.Linear(self + "o_proj", width, heads * d, any_bias);
  if (family == "qwen3" || family == "qwen3_moe" || family == "olmoe") {
    const bool all = family == "olmoe";
    maker.Norm(self + "q_norm", all ? heads * d : d);
    maker.Norm(self + "k_norm", all ? groups * d : d);
  }
}

void MakeLatentAttention(const Json& config, const std::string& self, Maker& maker) {
  const int64_t width = config.at("hidden_size");
  const int64_t heads = config.at("num_attention_heads");
  const int64_t rank = config.at("kv_lora_rank");
  const int64_t d_nope = config.at("qk_nope_head_dim");
  const int64_t d_rope = config.at("qk_rope_head_dim");
  const int64_t d_v = config.value("v_head_dim", width / heads);
  const bool bias = Flag(config, "attention_bias");
  const bool transmla = config.contains("qk_latent_layernorm");
  if (config.value("q_lora_rank", Json()).is_null()) {
    maker.Linear(self + "q_proj", heads * (d_nope + d_rope), width, bias && transmla);
  } else {
    const int64_t query_rank = config.at("q_lora_rank");
    maker.Linear(self + "q_a_proj", query_rank, width, bias);
    maker.Norm(self + "q_a_layernorm", query_rank);
    maker.Linear(self + "q_b_proj", heads * (d_nope + d_rope), query_rank);
  }
  maker.Linear(self + "kv_a_proj_with_mqa", rank + d_rope, width, bias);
  if (config.value("qk_latent_layernorm", true)) maker.Norm(self + "kv_a_layernorm", rank);
  maker.Linear(self + "kv_b_proj", heads * (d_nope + d_v), rank);
  maker.Linear(self + "o_proj", width, heads * d_v, bias && !transmla);
}

void MakeRotaryDecoder(const Json& config, Maker& maker) {
  const int64_t width = config.at("hidden_size");
  const int64_t inner = config.at("intermediate_size");
  const int64_t vocab = config.at("vocab_size");
  const int64_t layers = config.at("num_hidden_layers");
  const bool mlp_bias = Flag(config, "mlp_bias");
  const std::string family = config.at("model_type");
  maker.Linear("model.embed_tokens", vocab, width);
  for (int64_t layer = 0; layer < layers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    maker.Norm(prefix + "input_layernorm", width);
    if (config.contains("kv_lora_rank")) {
      MakeLatentAttention(config, prefix + "self_attn.", maker);
    } else {
      MakeGroupedAttention(config, prefix + "self_attn.", maker);
    }
    maker.Norm(prefix + "post_attention_layernorm", width);
    if (const int64_t experts = ExpertsOf(config, layer); experts > 0) {
      MakeExperts(config, prefix, experts, maker);
      continue;
    }
    if (family != "plm") maker.Linear(prefix + "mlp.gate_proj", inner, width, mlp_bias);
    maker.Linear(prefix + "mlp.up_proj", inner, width, mlp_bias);
    maker.Linear(prefix + "mlp.down_proj", width, inner, mlp_bias);
  }
  maker.Norm("model.norm", width);
  const bool tied = config.value("tie_word_embeddings",
                                 family == "minicpm3" || family == "youtu" || family == "plm");
  if (!tied) maker.Linear("lm_head", vocab, width);
}

// The attention of a variant (published_variants.h).
void MakeVariantAttention(const Json& config, const std::string& self, Maker& maker) {
  const std::string family = config.at("model_type");
  const int64_t width = config.at("hidden_size");
  const int64_t heads = config.at("num_attention_heads");
  const int64_t groups = config.at("num_key_value_heads");
  const int64_t d = config.value("head_dim", width / heads);
  const bool any_bias =
      Flag(config, "attention_bias") || (family == "starcoder2" && config.value("use_bias", true));
  const bool input_bias = any_bias || Flag(config, "use_qkv_bias");
  if (family == "phi3") {
    maker.Linear(self + "qkv_proj", (heads + 2 * groups) * d, width);
  } else {
    maker.Linear(self + "q_proj", heads * d, width, input_bias);
    maker.Linear(self + "k_proj", groups * d, width, input_bias);
    maker.Linear(self + "v_proj", groups * d, width, input_bias);
  }
  maker.Linear(self + "o_proj", width, heads * d, any_bias);
  if (family == "olmo2") {
    maker.Norm(self + "q_norm", heads * d);
    maker.Norm(self + "k_norm", groups * d);
  }
  if (family == "gemma3_text") {
    maker.NormLessOne(self + "q_norm", d);
    maker.NormLessOne(self + "k_norm", d);
  }
}

void MakeVariantMlp(const Json& config, const std::string& mlp, Maker& maker) {
  const std::string family = config.at("model_type");
  const int64_t width = config.at("hidden_size");
  const int64_t inner = config.at("intermediate_size");
  const bool bias = Flag(config, "mlp_bias");
  if (family == "starcoder2") {
    maker.Linear(mlp + "c_fc", inner, width, config.value("use_bias", true));
    maker.Linear(mlp + "c_proj", width, inner, config.value("use_bias", true));
    return;
  }
  if (family == "phi3") {
    maker.Linear(mlp + "gate_up_proj", 2 * inner, width);
  } else {
    maker.Linear(mlp + "gate_proj", inner, width, bias);
    maker.Linear(mlp + "up_proj", inner, width, bias);
  }
  maker.Linear(mlp + "down_proj", width, inner, bias);
}

void MakeVariant(const Json& config, Maker& maker) {
  const std::string family = config.at("model_type");
  const int64_t width = config.at("hidden_size");
  const int64_t vocab = config.at("vocab_size");
  const int64_t layers = config.at("num_hidden_layers");
  const auto norm = [&](const std::string& name) {
    if (family.starts_with("gemma")) return maker.NormLessOne(name, width);
    maker.Norm(name, width, family == "stablelm" || family == "starcoder2");
  };
  maker.Linear("model.embed_tokens", vocab, width);
  for (int64_t layer = 0; layer < layers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    if (family != "olmo2") norm(prefix + "input_layernorm");
    MakeVariantAttention(config, prefix + "self_attn.", maker);
    if (family != "cohere" && !Flag(config, "use_parallel_residual")) {
      norm(prefix + "post_attention_layernorm");
    }
    if (const int64_t experts = ExpertsOf(config, layer); experts > 0) {
      MakeExperts(config, prefix, experts, maker);
    } else {
      MakeVariantMlp(config, prefix + "mlp.", maker);
    }
    if (family == "gemma2" || family == "gemma3_text") norm(prefix + "pre_feedforward_layernorm");
    if (family == "olmo2" || family == "gemma2" || family == "gemma3_text") {
      norm(prefix + "post_feedforward_layernorm");
    }
  }
  norm("model.norm");
  const bool tied = family == "cohere" || family.starts_with("gemma") || family == "smollm3" ||
                    family == "starcoder2";
  if (!config.value("tie_word_embeddings", tied)) maker.Linear("lm_head", vocab, width);
}

const char* DtypeName(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return "F32";
    case at::kBFloat16:
      return "BF16";
    case at::kHalf:
      return "F16";
    case at::kDouble:
      return "F64";
    case at::kByte:
      return "U8";
    default:
      throw std::invalid_argument("a tensor's dtype");
  }
}

void WriteTensors(const std::filesystem::path& path, const Tensors& tensors) {
  std::vector<checkpoint::SafetensorsTensor> entries;
  for (const auto& [name, tensor] : tensors) {
    entries.push_back({name,
                       DtypeName(tensor.scalar_type()),
                       tensor.sizes().vec(),
                       {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()}});
  }
  checkpoint::WriteSafetensors(path, entries, {{"format", "pt"}});
}

// Appends the families with experts. small, latent: fields of decoders and of latent attention
void AddFamiliesWithExperts(const Json& small, const Json& latent,
                            std::vector<NamedConfig>& configs) {
  const auto add = [&](const std::string& name, const Json& base, const Json& fields) {
    configs.push_back({name, With(base, fields)});
  };
  const Json deepseek = With(latent, {{"num_hidden_layers", 3},
                                      {"q_lora_rank", nullptr},
                                      {"rms_norm_eps", 1e-6},
                                      {"first_k_dense_replace", 1},
                                      {"moe_intermediate_size", 11},
                                      {"n_routed_experts", 6},
                                      {"num_experts_per_tok", 3}});
  const Json deepseek2 = With(deepseek, {{"model_type", "deepseek_v2"}});
  add("DeepSeek2Experts", deepseek2,
      {{"n_shared_experts", 2},
       {"norm_topk_prob", false},
       {"routed_scaling_factor", 1.5},
       {"topk_method", "greedy"},
       {"scoring_func", "softmax"},
       {"n_group", 1},
       {"topk_group", 1}});
  add("DeepSeek2Groups", deepseek2,
      {{"first_k_dense_replace", 0},
       {"moe_layer_freq", 2},
       {"n_shared_experts", nullptr},
       {"routed_scaling_factor", 4.0},
       {"topk_method", "group_limited_greedy"},
       {"n_group", 3},
       {"topk_group", 2}});
  add("DeepSeek2Normalized", deepseek2,
      {{"n_shared_experts", 1}, {"norm_topk_prob", true}, {"routed_scaling_factor", 4.0}});
  add("DeepSeek2OneExpert", deepseek2,
      {{"num_experts_per_tok", 1}, {"n_routed_experts", 3}, {"norm_topk_prob", true}});
  const Json noaux = {{"scoring_func", "sigmoid"}, {"topk_method", "noaux_tc"}};
  const Json deepseek3 = With(With(deepseek, noaux), {{"model_type", "deepseek_v3"},
                                                      {"n_shared_experts", 1},
                                                      {"norm_topk_prob", true},
                                                      {"routed_scaling_factor", 2.5}});
  add("DeepSeek3Groups", deepseek3, {{"n_group", 3}, {"topk_group", 2}});
  add("DeepSeek3PairsAndQueryRank", deepseek3,
      {{"n_group", 2},
       {"topk_group", 1},
       {"num_experts_per_tok", 2},
       {"q_lora_rank", 13},
       {"norm_topk_prob", false}});
  add("KimiK2", deepseek3, {{"model_type", "kimi_k2"}, {"n_group", 1}, {"topk_group", 1}});
  add("Glm4MoeLite", Without(deepseek3, {"first_k_dense_replace"}),
      {{"model_type", "glm4_moe_lite"},
       {"n_group", 1},
       {"topk_group", 1},
       {"mlp_layer_types", {"sparse", "dense", "sparse"}},
       {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1000.0}}},
       {"rms_norm_eps", 0.02}});
  add("Youtu", With(latent, {{"model_type", "youtu"}}),
      {{"q_lora_rank", 13}, {"rms_norm_eps", 1e-6}, {"embedding_initializer_range", 0.02}});
  add("YoutuUntied", With(latent, {{"model_type", "youtu_llm"}}),
      {{"q_lora_rank", nullptr},
       {"rope_interleave", false},
       {"tie_word_embeddings", false},
       {"rms_norm_eps", 1e-6}});

  const Json grouped = With(small, {{"num_attention_heads", 6},
                                    {"num_key_value_heads", 2},
                                    {"rms_norm_eps", 1e-5},
                                    {"rope_theta", 1000.0},
                                    {"num_experts_per_tok", 2}});
  add("Mixtral", grouped,
      {{"model_type", "mixtral"}, {"num_local_experts", 4}, {"sliding_window", nullptr}});
  const Json granite = With(grouped, {{"model_type", "granitemoe"},
                                      {"num_local_experts", 5},
                                      {"residual_multiplier", 0.22},
                                      {"embedding_multiplier", 3.0},
                                      {"attention_multiplier", 0.4},
                                      {"logits_scaling", 1.7}});
  add("GraniteMoe", granite, {{"tie_word_embeddings", true}});
  add("GraniteMoeBiases", granite, {{"attention_bias", true}, {"num_experts_per_tok", 3}});
  const Json olmoe = With(grouped, {{"model_type", "olmoe"}, {"num_experts", 4}});
  add("Olmoe", olmoe, {{"clip_qkv", nullptr}});
  add("OlmoeNormalizedAndBiases", olmoe, {{"norm_topk_prob", true}, {"attention_bias", true}});
  const Json qwen = With(grouped, {{"num_hidden_layers", 3},
                                   {"moe_intermediate_size", 11},
                                   {"num_experts", 5},
                                   {"shared_expert_intermediate_size", 13}});
  add("Qwen2Moe", qwen,
      {{"model_type", "qwen2_moe"},
       {"decoder_sparse_step", 2},
       {"mlp_only_layers", Json::array()}});
  add("Qwen2MoeNormalizedWithoutBias", qwen,
      {{"model_type", "qwen2_moe"},
       {"norm_topk_prob", true},
       {"qkv_bias", false},
       {"mlp_only_layers", {1}}});
  const Json qwen3 = With(Without(qwen, {"shared_expert_intermediate_size"}),
                          {{"model_type", "qwen3_moe"}, {"head_dim", 10}});
  add("Qwen3Moe", qwen3, {{"norm_topk_prob", true}});
  add("Qwen3MoeBiases", qwen3, {{"attention_bias", true}, {"mlp_only_layers", {0, 2}}});
}

}  // namespace

std::vector<NamedConfig> EveryFamily() {
  std::vector<NamedConfig> configs;
  const auto add = [&](const std::string& name, const Json& base, const Json& fields) {
    configs.push_back({name, With(base, fields)});
  };

  const Json small = {{"vocab_size", 37},        {"hidden_size", 24},
                      {"intermediate_size", 43}, {"num_hidden_layers", 2},
                      {"hidden_act", "silu"},    {"max_position_embeddings", 40},
                      {"torch_dtype", "float32"}};
  const Json grouped = With(small, {{"num_attention_heads", 6}, {"num_key_value_heads", 2}});
  const Json llama3 = {{"rope_type", "llama3"},
                       {"factor", 4.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 32}};
  const Json yarn = {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 24}};

  const Json llama = With(grouped, {{"model_type", "llama"}});
  add("Llama", With(small, {{"model_type", "llama"}, {"num_attention_heads", 4}}),
      {{"rms_norm_eps", 1e-5}, {"pretraining_tp", 1}, {"rope_scaling", nullptr}});
  add("LlamaGroupsAndEveryBias", llama,
      {{"head_dim", 10},
       {"attention_bias", true},
       {"mlp_bias", true},
       {"tie_word_embeddings", true},
       {"rms_norm_eps", 0.02},
       {"rope_theta", 500.0}});
  add("LlamaLinear", llama, {{"rope_scaling", {{"type", "linear"}, {"factor", 2.5}}}});
  add("LlamaThree", llama,
      {{"head_dim", 8}, {"rope_theta", 300.0}, {"rope_scaling", llama3}, {"rms_norm_eps", 1e-5}});
  add("LlamaRopeParameters", llama,
      {{"head_dim", 8}, {"rope_parameters", With(llama3, {{"rope_theta", 300.0}})}});
  add("LlamaYarn", llama,
      {{"head_dim", 12},
       {"rope_theta", 30.0},
       {"rope_scaling", With(yarn, {{"beta_fast", 1.5}, {"beta_slow", 0.25}})}});
  add("LlamaYarnFactorAndFractions", llama,
      {{"head_dim", 12},
       {"rope_theta", 30.0},
       {"rope_scaling", With(yarn, {{"beta_fast", 1.5},
                                    {"beta_slow", 0.25},
                                    {"truncate", false},
                                    {"attention_factor", 1.3}})}});

  const Json mistral = With(grouped, {{"model_type", "mistral"}, {"rms_norm_eps", 1e-5}});
  add("Mistral", mistral, {{"sliding_window", 40}, {"rope_theta", 1000.0}});
  add("MistralWindow", mistral, {{"sliding_window", 9}, {"rope_theta", 1000.0}});
  add("MistralNoWindow", mistral, {{"sliding_window", nullptr}, {"head_dim", 8}});

  const Json qwen2 = With(grouped, {{"model_type", "qwen2"}, {"rms_norm_eps", 1e-6}});
  add("Qwen2", qwen2,
      {{"tie_word_embeddings", true},
       {"use_sliding_window", false},
       {"sliding_window", 5},
       {"max_window_layers", 1},
       {"rope_theta", 1000.0}});
  add("Qwen2Window", qwen2,
      {{"use_sliding_window", true}, {"sliding_window", 5}, {"max_window_layers", 1}});
  add("Qwen2Yarn", qwen2,
      {{"rope_theta", 30.0},
       {"hidden_size", 36},
       {"rope_scaling", With(yarn, {{"beta_fast", 1.5}, {"beta_slow", 0.25}})}});

  const Json qwen3 =
      With(grouped, {{"model_type", "qwen3"}, {"rms_norm_eps", 1e-6}, {"head_dim", 10}});
  add("Qwen3", qwen3, {{"tie_word_embeddings", true}, {"rope_theta", 1000.0}});
  add("Qwen3Window", qwen3,
      {{"use_sliding_window", true},
       {"sliding_window", 5},
       {"layer_types", {"sliding_attention", "full_attention"}}});
  add("Qwen3Biases", qwen3, {{"attention_bias", true}, {"rms_norm_eps", 0.05}});

  const Json gpt2 = {{"model_type", "gpt2"}, {"vocab_size", 37}, {"n_positions", 40},
                     {"n_embd", 24},         {"n_layer", 2},     {"n_head", 4}};
  add("Gpt2", gpt2,
      {{"activation_function", "gelu_new"},
       {"n_inner", nullptr},
       {"n_ctx", 40},
       {"layer_norm_epsilon", 1e-5}});
  add("Gpt2EveryOption", gpt2,
      {{"n_inner", 43},
       {"activation_function", "gelu"},
       {"layer_norm_epsilon", 0.02},
       {"n_layer", 3},
       {"scale_attn_by_inverse_layer_idx", true},
       {"tie_word_embeddings", false}});
  add("Gpt2Unscaled", gpt2,
      {{"scale_attn_weights", false}, {"activation_function", "gelu_pytorch_tanh"}});

  // All widths of a head differ: 4 heads, 6 and 4 for keys, 5 for values.
  const Json latent = With(small, {{"num_attention_heads", 4},
                                   {"num_key_value_heads", 4},
                                   {"kv_lora_rank", 9},
                                   {"qk_nope_head_dim", 6},
                                   {"qk_rope_head_dim", 4},
                                   {"v_head_dim", 5}});
  const Json deepseek_yarn =
      With(yarn,
           {{"beta_fast", 1.5}, {"beta_slow", 0.25}, {"mscale", 0.707}, {"mscale_all_dim", 0.707}});
  const Json deepseek2 = With(latent, {{"model_type", "deepseek_v2"}, {"rms_norm_eps", 1e-6}});
  add("DeepSeek2NoQueryRank", deepseek2, {{"q_lora_rank", nullptr}, {"n_routed_experts", nullptr}});
  add("DeepSeek2YarnAndBiases", deepseek2,
      {{"q_lora_rank", 13},
       {"attention_bias", true},
       {"rms_norm_eps", 0.02},
       {"qk_rope_head_dim", 8},
       {"rope_theta", 30.0},
       {"rope_scaling", deepseek_yarn},
       {"n_routed_experts", 64},
       {"first_k_dense_replace", 2},
       {"tie_word_embeddings", true}});
  const Json deepseek3 = With(latent, {{"model_type", "deepseek_v3"}, {"rms_norm_eps", 1e-6}});
  add("DeepSeek3Yarn", deepseek3,
      {{"q_lora_rank", 13},
       {"qk_rope_head_dim", 8},
       {"rope_theta", 30.0},
       {"rope_scaling", With(deepseek_yarn, {{"mscale", 2.0}, {"mscale_all_dim", 1.0}})},
       {"num_nextn_predict_layers", 1}});
  add("DeepSeek3Halves", deepseek3, {{"q_lora_rank", nullptr}, {"rope_interleave", false}});
  add("DeepSeek3BiasesAndFactors", deepseek3,
      {{"q_lora_rank", nullptr},
       {"attention_bias", true},
       {"rope_scaling",
        {{"rope_type", "longrope"},
         {"short_factor", {0.8, 31.5}},
         {"long_factor", {0.8, 31.5}},
         {"factor", 1.0},
         {"attention_factor", 1.25}}}});
  add("TransMla", deepseek3,
      {{"q_lora_rank", nullptr},
       {"qk_latent_layernorm", false},
       {"attention_bias", true},
       {"head_dim", 4},
       {"use_sliding_window", false},
       {"sliding_window", 8},
       {"max_window_layers", 1}});
  add("TransMlaNormedLatents", deepseek3,
      {{"q_lora_rank", 13}, {"qk_latent_layernorm", true}, {"attention_bias", true}});

  const Json plm =
      With(Without(latent, {"hidden_act"}), {{"model_type", "plm"}, {"rope_theta", 1000.0}});
  add("Plm", plm, {{"hidden_act", "relu2"}, {"rms_norm_eps", 1e-6}});
  add("PlmEveryOption", plm,
      {{"q_lora_rank", 13},
       {"attention_bias", true},
       {"rope_interleave", false},
       {"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}},
       {"rms_norm_eps", 0.02},
       {"tie_word_embeddings", false}});

  const Json minicpm = With(latent, {{"model_type", "minicpm3"},
                                     {"rms_norm_eps", 1e-5},
                                     {"q_lora_rank", 13},
                                     {"v_head_dim", 6},
                                     {"scale_emb", 5},
                                     {"scale_depth", 1.4},
                                     {"dim_model_base", 16}});
  const Json long_rope = {{"type", "longrope"},
                          {"short_factor", {1.1, 3.5}},
                          {"long_factor", {1.1, 3.5}},
                          {"original_max_position_embeddings", 40}};
  add("MiniCpm3", minicpm, {{"rope_scaling", long_rope}});
  add("MiniCpm3UntiedAndBiases", minicpm,
      {{"tie_word_embeddings", false},
       {"attention_bias", true},
       {"rms_norm_eps", 0.05},
       {"rope_scaling", With(long_rope, {{"original_max_position_embeddings", 20}})}});

  add("Phi3", grouped,
      {{"model_type", "phi3"},
       {"rms_norm_eps", 1e-5},
       {"head_dim", 8},
       {"partial_rotary_factor", 0.75},
       {"original_max_position_embeddings", 20},
       {"rope_scaling",
        {{"type", "longrope"},
         {"short_factor", {1.1, 2.0, 3.5}},
         {"long_factor", {1.1, 2.0, 3.5}}}},
       {"sliding_window", 40}});
  add("Phi3Window", grouped,
      {{"model_type", "phi3"}, {"rms_norm_eps", 1e-5}, {"sliding_window", 6}});
  add("Phi3WholeHeads", grouped,
      {{"model_type", "phi3"}, {"rms_norm_eps", 0.02}, {"tie_word_embeddings", true}});

  add("Granite", grouped,
      {{"model_type", "granite"},
       {"embedding_multiplier", 3.0},
       {"residual_multiplier", 0.22},
       {"attention_multiplier", 0.4},
       {"logits_scaling", 1.7},
       {"tie_word_embeddings", true},
       {"rms_norm_eps", 1e-5}});
  add("GraniteBiases", grouped,
      {{"model_type", "granite"},
       {"attention_bias", true},
       {"mlp_bias", true},
       {"residual_multiplier", 0.8},
       {"attention_multiplier", 0.25},
       {"rms_norm_eps", 0.02}});

  const Json smollm = With(grouped, {{"model_type", "smollm3"}, {"rope_theta", 300.0}});
  add("SmolLm3", smollm, {{"no_rope_layers", {0, 1}}, {"rms_norm_eps", 1e-6}});
  add("SmolLm3Window", smollm,
      {{"no_rope_layers", {0, 1}}, {"use_sliding_window", true}, {"sliding_window", 4}});
  add("SmolLm3IntervalAndMlpBias", smollm,
      {{"num_hidden_layers", 3},
       {"no_rope_layer_interval", 2},
       {"mlp_bias", true},
       {"tie_word_embeddings", false}});

  const Json gemma = With(grouped, {{"model_type", "gemma"},
                                    {"hidden_act", "gelu_pytorch_tanh"},
                                    {"head_dim", 10},
                                    {"rms_norm_eps", 1e-6}});
  add("Gemma", gemma, {{"rope_theta", 1000.0}});
  add("GemmaBiases", gemma,
      {{"attention_bias", true}, {"tie_word_embeddings", false}, {"rms_norm_eps", 0.05}});

  const Json gemma2 = With(gemma, {{"model_type", "gemma2"},
                                   {"num_hidden_layers", 3},
                                   {"query_pre_attn_scalar", 8},
                                   {"sliding_window", 7}});
  add("Gemma2", gemma2, {{"attn_logit_softcapping", 0.7}, {"final_logit_softcapping", 1.5}});
  add("Gemma2NoCaps", gemma2,
      {{"attn_logit_softcapping", nullptr},
       {"final_logit_softcapping", nullptr},
       {"layer_types", {"full_attention", "sliding_attention", "sliding_attention"}}});
  add("Gemma2CapsOfScores", gemma2,
      {{"final_logit_softcapping", nullptr}, {"attn_logit_softcapping", 1.0}});
  add("Gemma2NoWindow", gemma2,
      {{"sliding_window", nullptr}, {"attention_bias", true}, {"tie_word_embeddings", false}});
  add("Gemma2EverySliding", gemma2,
      {{"attn_logit_softcapping", 2.0},
       {"layer_types", {"sliding_attention", "sliding_attention", "sliding_attention"}}});

  const Json gemma3 = With(gemma2, {{"model_type", "gemma3_text"}, {"rope_theta", 3000.0}});
  add("Gemma3", gemma3, {{"rope_local_base_freq", 50.0}, {"sliding_window_pattern", 2}});
  add("Gemma3LinearAndCaps", gemma3,
      {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}},
       {"layer_types", {"sliding_attention", "sliding_attention", "full_attention"}},
       {"sliding_window", 2},
       {"attn_logit_softcapping", 0.7},
       {"final_logit_softcapping", 1.5}});
  add("Gemma3NoWindow", gemma3,
      {{"sliding_window", nullptr},
       {"rope_local_base_freq", 50.0},
       {"sliding_window_pattern", 3},
       {"attention_bias", true},
       {"rms_norm_eps", 0.05},
       {"tie_word_embeddings", false}});
  Json split = gemma3;
  split.erase("rope_theta");
  add("Gemma3ParametersOfKinds", split,
      {{"rope_parameters",
        {{"full_attention", {{"rope_type", "linear"}, {"factor", 4.0}, {"rope_theta", 3000.0}}},
         {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 50.0}}}}},
       {"sliding_window_pattern", 2}});
  add("Gemma3EveryFull", gemma3, {{"sliding_window_pattern", 1}});

  const Json starcoder = With(
      grouped,
      {{"model_type", "starcoder2"}, {"hidden_act", "gelu_pytorch_tanh"}, {"norm_epsilon", 1e-5}});
  add("Starcoder2", starcoder, {{"rope_theta", 1000.0}, {"sliding_window", 40}});
  add("Starcoder2Window", starcoder, {{"sliding_window", 11}});
  add("Starcoder2NoBias", starcoder,
      {{"use_bias", false}, {"norm_epsilon", 0.02}, {"tie_word_embeddings", false}});

  const Json stable = With(grouped, {{"model_type", "stablelm"}});
  const Json stable_heads = {{"hidden_size", 48}, {"layer_norm_eps", 1e-5}};
  add("StableLm", With(stable, stable_heads),
      {{"partial_rotary_factor", 0.25}, {"use_qkv_bias", true}});
  add("StableLmParallel", With(stable, stable_heads),
      {{"partial_rotary_factor", 0.5},
       {"use_parallel_residual", true},
       {"layer_norm_eps", 0.02},
       {"tie_word_embeddings", true}});

  const Json olmo = With(grouped, {{"model_type", "olmo2"}, {"rms_norm_eps", 1e-6}});
  add("Olmo2", olmo, {{"rope_theta", 1000.0}});
  add("Olmo2Biases", olmo,
      {{"attention_bias", true}, {"rms_norm_eps", 0.05}, {"tie_word_embeddings", true}});

  const Json cohere = With(grouped, {{"model_type", "cohere"}, {"rope_theta", 1000.0}});
  add("Cohere", cohere, {{"logit_scale", 0.5}, {"layer_norm_eps", 1e-5}});
  add("CohereUntiedAndBiases", cohere,
      {{"attention_bias", true},
       {"logit_scale", 2.0},
       {"tie_word_embeddings", false},
       {"layer_norm_eps", 0.02}});
  AddFamiliesWithExperts(small, latent, configs);
  return configs;
}

Tensors RandomTensors(const Json& config, uint64_t seed, at::ScalarType dtype) {
  Maker maker(seed, dtype);
  if (config.at("model_type") == "gpt2") {
    MakeGpt2(config, maker);
  } else if (IsVariant(config.at("model_type"))) {
    MakeVariant(config, maker);
  } else {
    MakeRotaryDecoder(config, maker);
  }
  return maker.Finish();
}

void AddBuffers(const Json& config, Tensors& tensors) {
  if (config.at("model_type") == "gpt2") {
    const int64_t positions = config.at("n_positions");
    const int64_t layers = config.at("n_layer");
    for (int64_t layer = 0; layer < layers; ++layer) {
      const std::string attn = "h." + std::to_string(layer) + ".attn.";
      tensors[attn + "bias"] =
          at::ones({positions, positions}, at::kFloat).tril().view({1, 1, positions, positions});
      tensors[attn + "masked_bias"] = at::full({}, -1e4, at::kFloat);
    }
    return;
  }
  const int64_t heads = config.at("num_attention_heads");
  const int64_t d = config.value("head_dim", config.at("hidden_size").get<int64_t>() / heads);
  const int64_t layers = config.at("num_hidden_layers");
  for (int64_t layer = 0; layer < layers; ++layer) {
    tensors["model.layers." + std::to_string(layer) + ".self_attn.rotary_emb.inv_freq"] =
        at::ones({d / 2}, at::kFloat);
  }
}

Tensors WithPrefix(const Tensors& tensors) {
  Tensors prefixed;
  for (const auto& [name, tensor] : tensors) {
    prefixed[name == "lm_head.weight" ? name : "transformer." + name] = tensor;
  }
  return prefixed;
}

void WriteCheckpoint(const std::filesystem::path& directory, const Json& config,
                     const Tensors& tensors, int shards) {
  WriteFile(directory / "config.json", config.dump(2));
  if (shards == 1) {
    WriteTensors(directory / "model.safetensors", tensors);
    return;
  }
  std::vector<Tensors> parts(static_cast<size_t>(shards));
  Json weight_map;
  size_t total_size = 0;
  for (const auto& [name, tensor] : tensors) {
    // Round-robin, so that no shard has all of a layer.
    const size_t part = weight_map.size() % parts.size();
    char file[64];
    std::snprintf(file, sizeof(file), "model-%05zu-of-%05zu.safetensors", part + 1, parts.size());
    parts[part][name] = tensor;
    weight_map[name] = file;
    total_size += tensor.nbytes();
  }
  for (const Tensors& part : parts) {
    if (part.empty()) throw std::invalid_argument("more shards than tensors");
    WriteTensors(directory / weight_map.at(part.begin()->first).get<std::string>(), part);
  }
  const Json index = {{"metadata", {{"total_size", total_size}}}, {"weight_map", weight_map}};
  WriteFile(directory / "model.safetensors.index.json", index.dump(2));
}

}  // namespace triptych::published
