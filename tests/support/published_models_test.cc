#include "tests/support/published_models.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "engine/checkpoint/tensors/safetensors.h"
#include "tests/support/published_checkpoints.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tensors.h"

namespace triptych::published::published_models_test {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::Pointwise;

const std::vector<int64_t> kIds = {3, 1, 4, 1, 5, 9, 2, 6};

Json Example(const std::string& name) {
  for (const NamedConfig& named : EveryFamily()) {
    if (named.name == name) return named.config;
  }
  throw std::out_of_range(name);
}

// `config` with the fields of `patch` (RFC 7396: those that are null are removed).
Json Patched(Json config, const Json& patch) {
  config.merge_patch(patch);
  return config;
}

std::vector<double> ToVector(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kDouble).contiguous();
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}

// Fills the tensors with numbers that a few lines in any language can reproduce: one stream over
// all tensors, in order of their names.
Tensors Numbered(Tensors tensors) {
  std::minstd_rand generator;
  for (auto& [name, tensor] : tensors) {
    auto* data = tensor.data_ptr<double>();
    for (int64_t i = 0; i < tensor.numel(); ++i) {
      const double uniform = 2 * static_cast<double>(generator()) / 2147483647.0 - 1;
      const bool norm = tensor.dim() == 1 && name.ends_with("weight");
      data[i] = tensor.dim() == 2 ? 0.6 * uniform : 0.5 * uniform + (norm ? 1 : 0);
    }
  }
  return tensors;
}

struct PublishedLogits {
  std::string source;  // code that computed the logits, once, in float64
  Json config;
  std::vector<double> logits;  // first logits of the last position
};

std::vector<PublishedLogits> EveryPublishedLogits() {
  const Json small = {{"vocab_size", 11},         {"hidden_size", 32},
                      {"intermediate_size", 20},  {"num_hidden_layers", 2},
                      {"num_attention_heads", 4}, {"num_key_value_heads", 2},
                      {"rms_norm_eps", 0.01},     {"max_position_embeddings", 64}};
  const Json latent = Patched(small, {{"num_key_value_heads", 4},
                                      {"kv_lora_rank", 9},
                                      {"qk_nope_head_dim", 6},
                                      {"qk_rope_head_dim", 4},
                                      {"v_head_dim", 5}});
  return {
      {"modeling_llama.py of transformers 4",
       Patched(small, {{"model_type", "llama"},
                       {"attention_bias", true},
                       {"mlp_bias", true},
                       {"rope_theta", 300.0},
                       {"rope_scaling",
                        {{"rope_type", "llama3"},
                         {"factor", 4.0},
                         {"low_freq_factor", 1.0},
                         {"high_freq_factor", 4.0},
                         {"original_max_position_embeddings", 32}}}}),
       {-2.327830820261, -2.914389035861, 2.608496324372, -2.557798568530, -0.979182394583}},
      {"modeling_qwen2.py of transformers 4",
       Patched(
           small,
           {{"model_type", "qwen2"},
            {"max_position_embeddings", 24},
            {"rope_theta", 30.0},
            {"rope_scaling",
             {{"rope_type", "yarn"}, {"factor", 4.0}, {"beta_fast", 3.0}, {"beta_slow", 0.5}}}}),
       {0.042835077366, -1.451694293602, -0.229385540956, -0.384978475713, 1.484280646722}},
      {"modeling_qwen3.py of the Qwen team's gated_attention, without gates",
       Patched(small, {{"model_type", "qwen3"},
                       {"head_dim", 10},
                       {"rope_theta", 1000.0},
                       {"tie_word_embeddings", true}}),
       {-1.527247429702, -0.229773951781, -1.308023635214, -0.785888047615, -0.418357370188}},
      {"model.py of nanoGPT",
       {{"model_type", "gpt2"},
        {"vocab_size", 11},
        {"n_positions", 16},
        {"n_embd", 32},
        {"n_layer", 2},
        {"n_head", 4},
        {"activation_function", "gelu"}},
       {-6.611737879838, 0.084649028983, 2.266710994222, 2.030511246518, -2.262358695068}},
      {"modeling_deepseek.py of deepseek-ai's ESFT",
       Patched(latent, {{"model_type", "deepseek_v2"},
                        {"attention_bias", true},
                        {"rope_theta", 30.0},
                        {"q_lora_rank", 13},
                        {"qk_rope_head_dim", 8},
                        {"rope_scaling",
                         {{"type", "yarn"},
                          {"factor", 4.0},
                          {"original_max_position_embeddings", 24},
                          {"beta_fast", 3},
                          {"beta_slow", 0.5},
                          {"mscale", 2.0},
                          {"mscale_all_dim", 1.0}}}}),
       {-1.629991756174, 0.385402419185, -2.891590022590, -0.554285209602, 0.773775475847}},
      {"modeling_deepseek.py of deepseek-ai's DeepSeek-VL2",
       [&] {
         Json config = Patched(latent, {{"model_type", "deepseek_v3"}, {"rope_theta", 100.0}});
         config["q_lora_rank"] = nullptr;
         return config;
       }(),
       {-4.708889035764, -0.915237736080, -1.103600021768, 0.577522954730, -0.902447600193}},
      {"modeling_minicpm.py of MiniCPM3-4B",
       Patched(latent, {{"model_type", "minicpm3"},
                        {"attention_bias", true},
                        {"q_lora_rank", 13},
                        {"v_head_dim", nullptr},
                        {"scale_emb", 5},
                        {"scale_depth", 1.4},
                        {"dim_model_base", 16},
                        {"rope_scaling",
                         {{"type", "longrope"},
                          {"short_factor", {1.1, 3.5}},
                          {"long_factor", {1.1, 3.5}},
                          {"original_max_position_embeddings", 20}}}}),
       {0.334776691110, -0.792921969423, 1.077005378574, -0.387478254304, -0.712435301390}},
  };
}

TEST(PublishedModels, GiveWhatPublishedCodeGives) {
  for (const PublishedLogits& published : EveryPublishedLogits()) {
    SCOPED_TRACE(published.source);
    const Tensors tensors = Numbered(RandomTensors(published.config, 1, at::kDouble));
    const at::Tensor last = Logits(published.config, tensors, kIds)[-1];
    EXPECT_THAT(ToVector(last.slice(0, 0, 5)), Pointwise(DoubleNear(1e-10), published.logits));
  }
}

TEST(PublishedModels, EveryTensorIsFelt) {
  for (const NamedConfig& named : EveryFamily()) {
    const Tensors tensors = RandomTensors(named.config, 1, at::kDouble);
    std::vector<int64_t> ids = kIds;
    // More tokens, for every expert.
    for (int64_t i = 0; i < 32; ++i) ids.push_back((5 * i * i + 3 * i + 1) % 37);
    const at::Tensor logits = Logits(named.config, tensors, ids);
    EXPECT_LT(logits.abs().max().item<double>(), 20) << named.name;
    EXPECT_GT(logits.square().mean().sqrt().item<double>(), 0.2) << named.name;
    for (const auto& [name, tensor] : tensors) {
      Tensors changed = tensors;
      changed[name] = 1.5 * tensor + 0.1;
      const double difference = LargestDifference(Logits(named.config, changed, ids), logits);
      // No token chooses this expert.
      if (difference == 0 && name.find(".experts.") != name.npos) continue;
      EXPECT_GT(difference, 1e-3) << named.name << " " << name;
      changed.erase(name);
      EXPECT_THROW(Logits(named.config, changed, ids), std::out_of_range) << name;
    }
  }
}

TEST(PublishedModels, EveryFieldIsFelt) {
  struct Change {
    std::string example;
    Json patch;
  };
  const auto scaling = [](const Json& patch) { return Json{{"rope_scaling", patch}}; };
  const std::vector<Change> changes = {
      {"Llama", {{"rms_norm_eps", 0.1}}},
      {"Llama", {{"hidden_act", "gelu"}}},
      {"Llama", {{"rope_theta", 100.0}}},
      {"LlamaGroupsAndEveryBias", {{"attention_bias", false}}},
      {"LlamaGroupsAndEveryBias", {{"mlp_bias", false}}},
      {"LlamaLinear", scaling({{"factor", 2.0}})},
      {"LlamaLinear", scaling({{"type", "default"}})},
      {"LlamaThree", scaling({{"factor", 2.0}})},
      {"LlamaThree", scaling({{"low_freq_factor", 0.5}})},
      {"LlamaThree", scaling({{"high_freq_factor", 3.0}})},
      {"LlamaThree", scaling({{"original_max_position_embeddings", 16}})},
      {"LlamaRopeParameters", {{"rope_parameters", {{"rope_theta", 100.0}}}}},
      {"LlamaRopeParameters", {{"rope_parameters", {{"factor", 2.0}}}}},
      {"Gemma3ParametersOfKinds",
       {{"rope_parameters", {{"full_attention", {{"rope_theta", 100.0}}}}}}},
      {"Gemma3ParametersOfKinds",
       {{"rope_parameters", {{"sliding_attention", {{"rope_theta", 100.0}}}}}}},
      {"LlamaYarn", scaling({{"factor", 2.0}})},
      {"LlamaYarn", scaling({{"beta_fast", nullptr}})},
      {"LlamaYarn", scaling({{"beta_slow", nullptr}})},
      {"LlamaYarn", scaling({{"truncate", false}})},
      {"LlamaYarn", scaling({{"attention_factor", 1.0}})},
      {"LlamaYarn", scaling({{"mscale", 1.0}, {"mscale_all_dim", 0.5}})},
      {"Mistral", {{"sliding_window", 4}}},
      {"Qwen2", {{"use_sliding_window", true}}},
      {"Qwen2", {{"use_sliding_window", true}, {"max_window_layers", 0}}},
      {"Qwen3Biases", {{"attention_bias", false}}},
      {"Qwen3Biases", {{"rms_norm_eps", 0.001}}},
      {"Gpt2EveryOption", {{"activation_function", "gelu_new"}}},
      {"Gpt2EveryOption", {{"layer_norm_epsilon", 1e-5}}},
      {"Gpt2EveryOption", {{"scale_attn_by_inverse_layer_idx", false}}},
      {"Gpt2EveryOption", {{"tie_word_embeddings", true}}},
      {"Gpt2Unscaled", {{"scale_attn_weights", true}}},
      {"DeepSeek2YarnAndBiases", {{"attention_bias", false}}},
      {"DeepSeek2YarnAndBiases", scaling({{"mscale", 1.0}})},
      {"DeepSeek2YarnAndBiases", scaling({{"mscale", nullptr}, {"mscale_all_dim", nullptr}})},
      {"DeepSeek3Halves", {{"rope_interleave", true}}},
      {"Plm", {{"hidden_act", "gelu"}}},
      {"PlmEveryOption", {{"attention_bias", false}}},
      {"PlmEveryOption", {{"rope_interleave", true}}},
      {"PlmEveryOption", {{"rms_norm_eps", 0.001}}},
      {"MiniCpm3", {{"scale_emb", 6}}},
      {"MiniCpm3", {{"scale_depth", 1}}},
      {"MiniCpm3", {{"dim_model_base", 24}}},
      {"MiniCpm3", scaling({{"short_factor", {1.1, 3.0}}})},
      {"MiniCpm3UntiedAndBiases", {{"max_position_embeddings", 30}}},
      {"Phi3", {{"partial_rotary_factor", 1.0}, {"rope_scaling", nullptr}}},
      {"Phi3", {{"original_max_position_embeddings", 30}}},
      {"Phi3", {{"sliding_window", 4}}},
      {"Granite", {{"embedding_multiplier", nullptr}}},
      {"Granite", {{"residual_multiplier", nullptr}}},
      {"Granite", {{"attention_multiplier", nullptr}}},
      {"Granite", {{"logits_scaling", nullptr}}},
      {"GraniteBiases", {{"mlp_bias", false}}},
      {"SmolLm3", {{"no_rope_layers", {1, 1}}}},
      {"SmolLm3IntervalAndMlpBias", {{"no_rope_layer_interval", 3}}},
      {"GemmaBiases", {{"attention_bias", false}}},
      {"Gemma", {{"hidden_activation", "silu"}}},
      {"Gemma", {{"torch_dtype", "bfloat16"}}},
      {"Starcoder2", {{"use_bias", false}}},
      {"Starcoder2", {{"sliding_window", 4}}},
      {"Starcoder2", {{"hidden_act", "silu"}}},
      {"StableLm", {{"use_qkv_bias", false}}},
      {"StableLm", {{"partial_rotary_factor", 0.5}}},
      {"Olmo2Biases", {{"rms_norm_eps", 0.001}}},
      {"Cohere", {{"logit_scale", nullptr}}},
      {"CohereUntiedAndBiases", {{"layer_norm_eps", 1e-5}}},
      {"DeepSeek2Experts", {{"num_experts_per_tok", 2}}},
      {"DeepSeek2Experts", {{"norm_topk_prob", true}}},
      {"DeepSeek2Experts", {{"routed_scaling_factor", nullptr}}},
      {"DeepSeek2Experts", {{"n_shared_experts", 0}}},
      {"DeepSeek2Groups", {{"topk_method", "greedy"}}},
      {"DeepSeek2Groups", {{"topk_group", 3}}},
      {"DeepSeek2Groups", {{"n_group", 6}}},
      {"DeepSeek2Normalized", {{"norm_topk_prob", false}}},
      {"DeepSeek3Groups", {{"topk_group", 3}}},
      {"DeepSeek3Groups", {{"n_group", 2}, {"topk_group", 1}}},
      {"DeepSeek3Groups", {{"norm_topk_prob", false}}},
      {"DeepSeek3Groups", {{"routed_scaling_factor", 1.0}}},
      {"OlmoeNormalizedAndBiases", {{"norm_topk_prob", false}}},
      {"Mixtral", {{"num_experts_per_tok", 1}}},
      {"GraniteMoe", {{"residual_multiplier", nullptr}}},
  };
  for (const auto& [example, patch] : changes) {
    const Json config = Example(example);
    const Tensors tensors = RandomTensors(config, 1, at::kDouble);
    EXPECT_GT(LargestDifference(Logits(Patched(config, patch), tensors, kIds),
                                Logits(config, tensors, kIds)),
              1e-5)
        << example << " " << patch;
  }
}

TEST(PublishedModels, AWindowIsFeltBeyondItsLengthOnly) {
  const Json config = Example("Mistral");
  const Tensors tensors = RandomTensors(config, 1, at::kDouble);
  const at::Tensor all = Logits(config, tensors, kIds);
  const auto difference = [&](int64_t window, int64_t position) {
    const at::Tensor logits = Logits(Patched(config, {{"sliding_window", window}}), tensors, kIds);
    return LargestDifference(logits[position], all[position]);
  };
  EXPECT_EQ(difference(8, 7), 0);
  EXPECT_EQ(difference(5, 4), 0);
  EXPECT_GT(difference(5, 5), 1e-3);
}

TEST(PublishedModels, EitherNameOfAFieldIsRead) {
  const Json config = Example("LlamaThree");
  Json newer = config;
  newer["rope_parameters"] = Patched(config.at("rope_scaling"), {{"rope_theta", 300.0}});
  newer.erase("rope_scaling");
  newer.erase("rope_theta");
  const Tensors tensors = RandomTensors(config, 1);
  EXPECT_EQ(LargestDifference(Logits(newer, tensors, kIds), Logits(config, tensors, kIds)), 0);
}

TEST(PublishedModels, BuffersAndPrefixesChangeNothing) {
  for (const char* name : {"Llama", "Gpt2", "Gpt2EveryOption"}) {
    const Json config = Example(name);
    Tensors tensors = RandomTensors(config, 1);
    const at::Tensor logits = Logits(config, tensors, kIds);
    AddBuffers(config, tensors);
    EXPECT_EQ(LargestDifference(Logits(config, tensors, kIds), logits), 0) << name;
    if (config.at("model_type") != "gpt2") continue;
    EXPECT_EQ(LargestDifference(Logits(config, WithPrefix(tensors), kIds), logits), 0) << name;
  }
}

TEST(PublishedModels, AnUndefinedFieldThrows) {
  const auto refused = [](const std::string& example, const Json& patch) {
    const Json config = Example(example);
    EXPECT_THROW(Logits(Patched(config, patch), RandomTensors(config, 1), kIds),
                 std::invalid_argument)
        << patch;
  };
  refused("Llama", {{"model_type", "mamba"}});
  refused("Llama", {{"hidden_act", "relu"}});
  refused("Llama", {{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}});
  refused("LlamaYarn", {{"rope_scaling", {{"mscale", 1.0}}}});
  refused("Cohere", {{"use_qk_norm", true}});
  refused("StableLm", {{"qk_layernorm", true}});
}

TEST(PublishedActivations, HaveTheirValues) {
  const at::Tensor x = at::tensor({1.0, -1.0}, at::kDouble);
  const auto values = [&](const char* name) { return ToVector(Activate(name, x)); };
  const auto near = [](double a, double b) {
    return ElementsAre(DoubleNear(a, 1e-14), DoubleNear(b, 1e-14));
  };
  EXPECT_THAT(values("silu"), near(0.7310585786300049, -0.2689414213699951));
  EXPECT_THAT(values("gelu"), near(0.8413447460685429, -0.1586552539314571));
  EXPECT_THAT(values("gelu_new"), near(0.8411919906082768, -0.1588080093917232));
  EXPECT_THAT(values("gelu_pytorch_tanh"), near(0.8411919906082768, -0.1588080093917232));
}

// Some pairs' frequencies.
std::vector<double> Frequencies(const Json& config, int64_t dim,
                                const std::vector<int64_t>& pairs) {
  return ToVector(RotaryOf(config, dim, 1).frequencies.index_select(0, ToTensor(pairs)));
}

MATCHER_P(RelativelyNear, most, "") {
  return std::abs(std::get<0>(arg) - std::get<1>(arg)) <= most * std::abs(std::get<1>(arg));
}

TEST(PublishedRotary, PairsTurnBySmallerPowersOfTheta) {
  const Json config = {{"rope_theta", 100.0}};
  EXPECT_THAT(Frequencies(config, 4, {0, 1}),
              Pointwise(RelativelyNear(1e-15), std::vector<double>{1, 0.1}));
  const Json linear = Patched(config, {{"rope_scaling", {{"type", "linear"}, {"factor", 4}}}});
  EXPECT_THAT(Frequencies(linear, 4, {0, 1}),
              Pointwise(RelativelyNear(1e-15), std::vector<double>{0.25, 0.025}));
}

// Expected by Meta's code (llama-models, models/llama3/model.py), with Llama 3.1's numbers, in
// float64.
TEST(PublishedRotary, Llama3IsMetas) {
  const Json config = {{"rope_theta", 500000.0},
                       {"max_position_embeddings", 131072},
                       {"rope_scaling",
                        {{"rope_type", "llama3"},
                         {"factor", 8.0},
                         {"low_freq_factor", 1.0},
                         {"high_freq_factor", 4.0},
                         {"original_max_position_embeddings", 8192}}}};
  EXPECT_THAT(
      Frequencies(config, 128, {0, 28, 29, 30, 33, 34, 35, 63}),
      Pointwise(RelativelyNear(1e-11),
                std::vector<double>{1, 3.211445994753e-03, 2.166570763503e-03, 1.371893567761e-03,
                                    3.126937503841e-04, 1.785078127680e-04, 9.556212353965e-05,
                                    3.068925988915e-07}));
}

// Expected by deepseek-ai's code (ESFT, modeling_deepseek.py), with DeepSeek-V2-Lite's numbers, in
// float64.
TEST(PublishedRotary, YarnIsDeepSeeks) {
  const Json config = {{"rope_theta", 10000},
                       {"max_position_embeddings", 163840},
                       {"rope_scaling",
                        {{"type", "yarn"},
                         {"factor", 40},
                         {"original_max_position_embeddings", 4096},
                         {"beta_fast", 32},
                         {"beta_slow", 1},
                         {"mscale", 0.707},
                         {"mscale_all_dim", 0.707}}}};
  EXPECT_THAT(
      Frequencies(config, 64, {0, 9, 10, 11, 16, 22, 23, 24, 31}),
      Pointwise(RelativelyNear(1e-11),
                std::vector<double>{1, 7.498942093325e-02, 5.623413251903e-02, 3.900692656714e-02,
                                    5.500000000000e-03, 1.778279410039e-04, 3.333803580408e-05,
                                    2.500000000000e-05, 3.333803580408e-06}));
  EXPECT_EQ(RotaryOf(config, 64, 1).magnitude, 1);
}

// Expected by transformers 5.17.0, in float32.
TEST(PublishedRotary, YarnIsTransformers) {
  const Json config = {{"max_position_embeddings", 262144},
                       {"rope_parameters",
                        {{"rope_type", "yarn"},
                         {"rope_theta", 1e7},
                         {"factor", 4.0},
                         {"original_max_position_embeddings", 262144}}}};
  EXPECT_THAT(Frequencies(config, 64, {0, 14, 15, 18, 21, 22, 31}),
              Pointwise(RelativelyNear(1e-6),
                        std::vector<double>{1, 8.659643354e-04, 4.742398160e-04, 7.217386883e-05,
                                            8.759770026e-06, 3.849816039e-06, 4.137042708e-08}));
  EXPECT_NEAR(RotaryOf(config, 64, 1).magnitude, 1.138629436111989, 1e-15);
}

TEST(PublishedRotary, LongRopeChoosesItsTableByLength) {
  const Json config = {{"max_position_embeddings", 64},
                       {"rope_scaling",
                        {{"type", "longrope"},
                         {"short_factor", {1, 2}},
                         {"long_factor", {4, 5}},
                         {"original_max_position_embeddings", 16}}}};
  const auto second = [&](int64_t length) {
    return RotaryOf(config, 4, length).frequencies[1].item<double>();
  };
  EXPECT_DOUBLE_EQ(second(16), 0.01 / 2);
  EXPECT_DOUBLE_EQ(second(17), 0.01 / 5);
  // sqrt(1 + ln 4 / ln 16)
  EXPECT_DOUBLE_EQ(RotaryOf(config, 4, 1).magnitude, std::sqrt(1.5));
}

// The tensors of one file.
Tensors ReadTensors(const std::filesystem::path& path, at::ScalarType dtype) {
  const checkpoint::SafetensorsFile file(path);
  Tensors tensors;
  for (const auto& [name, entry] : file.entries()) {
    tensors[name] = at::empty(entry.shape, dtype);
    auto* data = static_cast<std::byte*>(tensors[name].data_ptr());
    file.Read(name, {data, tensors[name].nbytes()});
  }
  return tensors;
}

TEST(PublishedCheckpoints, FilesHoldTheConfigAndTheTensors) {
  const Json config = Example("DeepSeek3Yarn");
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const Tensors tensors = RandomTensors(config, 1, dtype);
    for (const int shards : {1, 3}) {
      const TempDir directory;
      WriteCheckpoint(directory.path(), config, tensors, shards);
      EXPECT_EQ(Json::parse(ReadFile(directory.path() / "config.json")), config);
      Tensors read;
      if (shards == 1) {
        read = ReadTensors(directory.path() / "model.safetensors", dtype);
      } else {
        const Json index = Json::parse(ReadFile(directory.path() / "model.safetensors.index.json"));
        for (int shard = 1; shard <= shards; ++shard) {
          const std::string file = "model-0000" + std::to_string(shard) + "-of-00003.safetensors";
          for (const auto& [name, tensor] : ReadTensors(directory.path() / file, dtype)) {
            EXPECT_EQ(index.at("weight_map").at(name), file);
            read[name] = tensor;
          }
        }
        EXPECT_EQ(index.at("weight_map").size(), tensors.size());
      }
      ASSERT_EQ(read.size(), tensors.size());
      for (const auto& [name, tensor] : tensors) EXPECT_TRUE(tensor.equal(read.at(name))) << name;
    }
  }
}

}  // namespace
}  // namespace triptych::published::published_models_test
