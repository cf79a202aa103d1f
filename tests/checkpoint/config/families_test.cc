// Configs as they are published: what they become, and what is refused.
#include "engine/checkpoint/config/families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/checkpoint/config/config_file.h"
#include "tests/support/published_configs.h"
#include "tests/support/refusal.h"

namespace triptych::checkpoint::families_test {
namespace {

using published::Aya;
using published::DeepSeekDense;
using published::DeepSeekV2Lite;
using published::Gemma;
using published::Gpt2;
using published::Granite;
using published::Llama32;
using published::MiniCpm3;
using published::Mistral;
using published::Olmo2;
using published::Phi3Mini;
using published::Plm;
using published::Qwen25;
using published::Qwen3;
using published::SmolLm2;
using published::SmolLm3;
using published::StableLm2;
using published::Starcoder2;
using published::With;
using published::Without;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

ModelConfig Parse(const Json& config) { return ParseModelConfig(config.dump(), "config.json"); }

std::string Refusal(const Json& config) {
  return RefusalOf<LoadError>([&] { Parse(config); });
}

TEST(FamiliesTest, Llama) {
  const ModelConfig config = Parse(SmolLm2());
  EXPECT_EQ(config.attention, AttentionKind::kGqa);
  EXPECT_EQ(config.num_key_value_heads, 3);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.head_grouping, HeadGrouping::kContiguous);
  EXPECT_FALSE(config.rope_interleave);
  EXPECT_EQ(config.rope_theta, 100000);
  EXPECT_THAT(config.rope_factors, IsEmpty());
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.torch_dtype, TensorFormat::kBFloat16);
  EXPECT_EQ(Parse(With(SmolLm2(), {{"num_key_value_heads", 9}})).attention, AttentionKind::kMha);
  // Twice the first and last of the stretched frequencies; by the paper's definition high ones
  // stay.
  const ModelConfig stretched = Parse(Llama32());
  ASSERT_THAT(stretched.rope_factors, SizeIs(32));
  EXPECT_EQ(stretched.rope_factors.front(), 1);
  EXPECT_DOUBLE_EQ(stretched.rope_factors.back(), 32);
  EXPECT_EQ(stretched.max_position_embeddings, 131072);
}

TEST(FamiliesTest, MistralsWindowIsEveryLayers) {
  const ModelConfig config = Parse(Mistral());
  EXPECT_EQ(config.max_position_embeddings, 32768);
  EXPECT_EQ(config.sliding_window, 4096);
  EXPECT_THAT(config.layer_types, IsEmpty());
  EXPECT_EQ(config.Window(0), 4096);
  EXPECT_EQ(Parse(With(Mistral(), {{"sliding_window", nullptr}})).sliding_window, 0);
  EXPECT_EQ(Parse(Without(Mistral(), {"sliding_window"})).sliding_window, 4096);
  // As long as the context: no window.
  EXPECT_FALSE(Parse(With(Mistral(), {{"sliding_window", 32768}})).HasWindows());
  // transformers' Llama has none, whatever its config says.
  EXPECT_EQ(Parse(With(SmolLm2(), {{"sliding_window", 16}})).sliding_window, 0);
}

// Windows that mean nothing, with one message each.
TEST(FamiliesTest, HostileWindowsAndCapsAreRefused) {
  for (const Json& window : {Json(0), Json(-1), Json(1e300), Json("4"), Json(2.5), Json{1, 2}}) {
    for (const Json& config : {Mistral(), Starcoder2(), Phi3Mini(), Qwen25(), published::Gemma2(),
                               published::Gemma3()}) {
      EXPECT_THAT(Refusal(With(config, {{"sliding_window", window}})),
                  AllOf(HasSubstr("sliding_window is "), HasSubstr("allowed: ")));
    }
  }
  for (const char* field :
       {"attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"}) {
    for (const Json& value : {Json(0), Json(-50.0), Json(1e300), Json("50"), Json::array()}) {
      EXPECT_THAT(Refusal(With(published::Gemma2(), {{field, value}})),
                  AllOf(HasSubstr(std::string(field) + " is "), HasSubstr("allowed: ")));
    }
  }
  for (const Json& theta : {Json(0), Json(-1), Json("10000")}) {
    EXPECT_THAT(Refusal(With(published::Gemma3(), {{"rope_local_base_freq", theta}})),
                HasSubstr("rope_local_base_freq is "));
  }
  for (const Json& pattern : {Json(0), Json(-6), Json(1.5)}) {
    EXPECT_THAT(Refusal(With(published::Gemma3(), {{"sliding_window_pattern", pattern}})),
                HasSubstr("sliding_window_pattern is "));
  }
  const std::vector<std::string> short_list(25, "sliding_attention");
  for (const Json& config : {published::Gemma2(), published::Gemma3(), Qwen25(), Mistral()}) {
    EXPECT_THAT(Refusal(With(config, {{"layer_types", short_list}})),
                AllOf(HasSubstr("layer_types is "), HasSubstr("num_hidden_layers = ")));
    EXPECT_THAT(Refusal(With(config, {{"layer_types", {"chunked_attention"}}})),
                HasSubstr("supported: a list of \"full_attention\" and \"sliding_attention\""));
    EXPECT_THAT(Refusal(With(config, {{"layer_types", "full_attention"}})),
                HasSubstr("layer_types is "));
  }
}

TEST(FamiliesTest, Qwen) {
  const ModelConfig two = Parse(Qwen25());
  EXPECT_TRUE(two.attention_bias);
  EXPECT_FALSE(two.OutputBias());
  EXPECT_FALSE(two.qk_norm);
  EXPECT_EQ(two.max_position_embeddings, 32768);
  const ModelConfig three = Parse(Qwen3());
  EXPECT_FALSE(three.attention_bias);
  EXPECT_TRUE(three.qk_norm);
  EXPECT_EQ(three.head_dim, 128);
  // Windows of the layers from max_window_layers on, or of those that layer_types names.
  const auto windows = [](const Json& config) {
    const ModelConfig parsed = Parse(config);
    std::vector<int64_t> layers;
    for (int64_t layer = 0; layer < parsed.num_hidden_layers; ++layer) {
      if (parsed.Window(layer) == parsed.sliding_window) layers.push_back(layer);
    }
    return layers;
  };
  const Json used = {{"use_sliding_window", true}, {"sliding_window", 1024}};
  EXPECT_THAT(windows(With(Qwen25(), used)), IsEmpty());  // max_window_layers is 24 or more
  Json some = With(With(Qwen25(), used), {{"max_window_layers", 21}});
  EXPECT_EQ(windows(some), (std::vector<int64_t>{21, 22, 23}));
  EXPECT_EQ(Parse(some).max_position_embeddings, 32768);
  some["layer_types"] = std::vector<std::string>(24, "full_attention");
  EXPECT_THAT(windows(some), IsEmpty());
  some["layer_types"][3] = "sliding_attention";
  EXPECT_EQ(windows(some), std::vector<int64_t>{3});
  some.erase("sliding_window");
  EXPECT_EQ(Parse(some).sliding_window, 4096);
  some["sliding_window"] = nullptr;
  EXPECT_EQ(Parse(some).sliding_window, 0);
}

TEST(FamiliesTest, Gpt2) {
  const ModelConfig config = Parse(Gpt2());
  EXPECT_EQ(config.attention, AttentionKind::kMha);
  EXPECT_EQ(config.position_embedding, PositionEmbedding::kLearned);
  EXPECT_EQ(config.norm, NormKind::kLayerNorm);
  EXPECT_EQ(config.hidden_act, HiddenAct::kGelu);
  EXPECT_EQ(config.intermediate_size, 3072);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.torch_dtype, TensorFormat::kFloat32);
}

TEST(FamiliesTest, LatentOnes) {
  const ModelConfig config = Parse(DeepSeekDense());
  EXPECT_EQ(config.attention, AttentionKind::kMla);
  EXPECT_EQ(CacheRowElements(config), std::vector<int64_t>(27, 576));
  EXPECT_EQ(config.q_lora_rank, 0);
  EXPECT_TRUE(config.rope_interleave);
  EXPECT_EQ(config.rope_attention_factor, 1);
  // DeepSeek-V2, section 3.1.4: 0.0707 ln s + 1 of both sides of a score.
  EXPECT_DOUBLE_EQ(config.attention_score_factor, std::pow(0.0707 * std::log(40.0) + 1, 2));
  const ModelConfig small = Parse(MiniCpm3());
  EXPECT_EQ(small.q_lora_rank, 768);
  EXPECT_EQ(small.ValueDim(), 64);
  EXPECT_FALSE(small.rope_interleave);
  EXPECT_TRUE(small.tie_word_embeddings);
  ASSERT_THAT(small.rope_factors, SizeIs(16));
  EXPECT_EQ(small.rope_factors.front(), 1.0591234137867171);
  EXPECT_EQ(small.rope_factors.back(), 16.940876586213285);
  EXPECT_EQ(small.rope_attention_factor, 1);
  EXPECT_DOUBLE_EQ(small.logit_multiplier, 0.1);
  EXPECT_DOUBLE_EQ(small.embedding_multiplier, 12 / (1.4 / std::sqrt(62.0)));
}

TEST(FamiliesTest, PlmHasNoGate) {
  const ModelConfig config = Parse(Plm());
  EXPECT_EQ(config.mlp, MlpKind::kRelu2);
  EXPECT_EQ(config.hidden_act, HiddenAct::kRelu2);
  EXPECT_FALSE(config.GatesMlp());
  EXPECT_EQ(config.q_lora_rank, 0);
  EXPECT_EQ(CacheRowElements(config), std::vector<int64_t>(32, 576));
  EXPECT_EQ(config.rope_theta, 100000);
  EXPECT_TRUE(config.rope_interleave);
  // Its publisher's defaults.
  const Json brief = Without(
      Plm(), {"hidden_act", "q_lora_rank", "rms_norm_eps", "rope_scaling", "tie_word_embeddings"});
  EXPECT_EQ(ToJson(Parse(brief)), ToJson(config));
}

TEST(FamiliesTest, Phi3) {
  const ModelConfig config = Parse(Phi3Mini());
  EXPECT_EQ(config.rotary_dim, 0);
  EXPECT_EQ(config.sliding_window, 2047);
  // As in Phi-4-mini, whose heads of 128 rotate 96 elements.
  Json partial = With(Phi3Mini(), {{"num_attention_heads", 24},
                                   {"num_key_value_heads", 8},
                                   {"partial_rotary_factor", 0.75},
                                   {"sliding_window", 262144}});
  EXPECT_EQ(Parse(partial).rotary_dim, 96);
  EXPECT_EQ(Parse(partial).RotaryDim(), 96);
  const std::vector<double> factors(48, 1.5);
  partial["max_position_embeddings"] = 131072;
  partial["rope_scaling"] = {
      {"type", "longrope"}, {"short_factor", factors}, {"long_factor", factors}};
  const ModelConfig longer = Parse(partial);
  EXPECT_EQ(longer.rope_factors, factors);
  EXPECT_DOUBLE_EQ(longer.rope_attention_factor, std::sqrt(1 + std::log(32.0) / std::log(4096.0)));
  // As transformers 5 writes it.
  Json renamed = Without(partial, {"rope_scaling", "partial_rotary_factor", "rope_theta"});
  renamed["rope_parameters"] =
      With(partial["rope_scaling"],
           {{"rope_type", "longrope"}, {"rope_theta", 10000.0}, {"partial_rotary_factor", 0.75}});
  EXPECT_EQ(ToJson(Parse(renamed)), ToJson(longer));
  EXPECT_EQ(longer.max_position_embeddings, 131072);
  // Long factors of their own are not served: the context ends where they would begin.
  partial["rope_scaling"]["long_factor"] = std::vector<double>(48, 2.5);
  EXPECT_EQ(Parse(partial).max_position_embeddings, 4096);
}

TEST(FamiliesTest, GranitesMultipliersBecomeTheEngines) {
  const ModelConfig config = Parse(Granite());
  EXPECT_DOUBLE_EQ(config.embedding_multiplier, 12 / 0.22);
  EXPECT_DOUBLE_EQ(config.norm_eps, 1e-5 / (0.22 * 0.22));
  EXPECT_DOUBLE_EQ(config.attention_score_factor, 0.015625 * 8);  // times sqrt(64)
  EXPECT_DOUBLE_EQ(config.logit_multiplier, 0.125);
  EXPECT_DOUBLE_EQ(Parse(Without(Granite(), {"residual_multiplier"})).embedding_multiplier, 12);
}

TEST(FamiliesTest, SomeLayersOfSmolLm3DoNotRotate) {
  const ModelConfig config = Parse(SmolLm3());
  EXPECT_TRUE(config.Rotates(0) && config.Rotates(2) && config.Rotates(4));
  EXPECT_FALSE(config.Rotates(3) || config.Rotates(35));
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(ToJson(Parse(Without(SmolLm3(), {"no_rope_layers", "no_rope_layer_interval"}))),
            ToJson(config));
  // Windows of the layers that layer_types names, or of those that do not rotate.
  Json window = With(SmolLm3(), {{"use_sliding_window", true}, {"sliding_window", 512}});
  EXPECT_FALSE(Parse(window).HasWindows());
  window.erase("layer_types");
  EXPECT_EQ(Parse(window).Window(3), 512);
  EXPECT_EQ(Parse(window).Window(2), kNoWindow);
  window["no_rope_layers"] = std::vector<int>(36, 1);
  EXPECT_FALSE(Parse(window).HasWindows());
}

TEST(FamiliesTest, Gemma) {
  const ModelConfig config = Parse(published::Gemma());
  EXPECT_EQ(config.mlp, MlpKind::kGeglu);
  EXPECT_EQ(config.hidden_act, HiddenAct::kGelu);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.embedding_multiplier, 45.25);  // the bfloat16 nearest to sqrt(2048)
  EXPECT_DOUBLE_EQ(
      Parse(With(published::Gemma(), {{"torch_dtype", "float32"}})).embedding_multiplier,
      std::sqrt(2048.0));
}

TEST(FamiliesTest, Gemma2) {
  const ModelConfig config = Parse(published::Gemma2());
  EXPECT_EQ(config.embedding_multiplier, 48);  // in float32
  EXPECT_TRUE(config.norm_inputs && config.norm_outputs && config.tie_word_embeddings);
  EXPECT_EQ(config.attention_score_factor, 1);
  EXPECT_EQ(config.attn_logit_softcapping, 50);
  EXPECT_EQ(config.final_logit_softcapping, 30);
  EXPECT_EQ(config.Window(0), 4096);
  EXPECT_EQ(config.Window(1), kNoWindow);
  EXPECT_FALSE(config.qk_norm);
  // As 27b has it: 4608 / 32 for heads of 128.
  EXPECT_DOUBLE_EQ(
      Parse(With(published::Gemma2(), {{"head_dim", 128}, {"query_pre_attn_scalar", 144}}))
          .attention_score_factor,
      std::sqrt(128.0 / 144));
  const Json bare = Without(
      published::Gemma2(), {"attn_logit_softcapping", "sliding_window", "final_logit_softcapping"});
  EXPECT_EQ(ToJson(Parse(bare)), ToJson(config));
  const ModelConfig uncapped = Parse(
      With(bare, {{"attn_logit_softcapping", nullptr}, {"final_logit_softcapping", nullptr}}));
  EXPECT_EQ(uncapped.attn_logit_softcapping, 0);
  EXPECT_EQ(uncapped.final_logit_softcapping, 0);
}

TEST(FamiliesTest, Gemma3) {
  const ModelConfig config = Parse(published::Gemma3());
  EXPECT_EQ(config.rope_theta, 1e6);
  EXPECT_EQ(config.rope_local_base_freq, 10000);
  EXPECT_TRUE(config.norm_inputs && config.norm_outputs && config.qk_norm);
  EXPECT_FALSE(config.qk_norm_all_heads);
  EXPECT_EQ(config.attn_logit_softcapping, 0);
  for (int64_t layer = 0; layer < 26; ++layer) {
    const bool full = layer == 5 || layer == 11 || layer == 17 || layer == 23;
    EXPECT_EQ(config.Window(layer), full ? kNoWindow : 512);
    EXPECT_EQ(config.TurnsLocally(layer), !full);
  }
  // As in 4b, whose context is the extended one.
  const ModelConfig extended =
      Parse(With(published::Gemma3(), {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}},
                                       {"max_position_embeddings", 131072}}));
  EXPECT_EQ(extended.max_position_embeddings, 131072);
  EXPECT_EQ(extended.rope_factors.front(), 8);
}

// The file of transformers 5 means the same as the older one.
TEST(FamiliesTest, Gemma3WithParametersOfEachKindOfLayers) {
  const Json linear = {{"rope_type", "linear"}, {"factor", 8.0}};
  const Json older = With(published::Gemma3(), {{"rope_scaling", linear},
                                                {"rope_theta", 2e6},
                                                {"rope_local_base_freq", 500.0},
                                                {"max_position_embeddings", 131072}});
  Json newer = older;
  for (const char* field : {"rope_scaling", "rope_theta", "rope_local_base_freq"}) {
    newer.erase(field);
  }
  const Json sliding = {{"rope_type", "default"}, {"rope_theta", 500.0}};
  const Json full = With(linear, {{"rope_theta", 2e6}});
  const auto with = [&](const Json& parameters) {
    return With(newer, {{"rope_parameters", parameters}});
  };
  const Json split = {{"full_attention", full}, {"sliding_attention", sliding}};
  EXPECT_EQ(ToJson(Parse(with(split))), ToJson(Parse(older)));
  const struct {
    Json parameters;
    const char* what;
  } bad[] = {
      {{{"full_attention", full}}, "rope_parameters: sliding_attention is missing"},
      {{{"sliding_attention", sliding}}, "rope_theta is missing"},
      {{{"full_attention", linear}, {"sliding_attention", sliding}}, "rope_theta is missing"},
      {{{"full_attention", full}, {"sliding_attention", 7}}, "sliding_attention"},
      {{{"full_attention", 7}, {"sliding_attention", sliding}}, "rope_theta is missing"},
      {{{"full_attention", full}, {"sliding_attention", full}},
       "sliding_attention: rope_type is \"linear\""},
      {With(split, {{"chunked_attention", sliding}}), "chunked_attention is"},
      {{{"full_attention", With(full, {{"x", 1}})}, {"sliding_attention", sliding}}, "x is"},
  };
  for (const auto& [parameters, what] : bad) {
    EXPECT_THAT(Refusal(with(parameters)), HasSubstr(what)) << parameters;
  }
  // Other families have one kind.
  EXPECT_THAT(Refusal(With(published::Gemma2(), {{"rope_parameters", split}})),
              HasSubstr("full_attention is"));
}

TEST(FamiliesTest, LayerNormFamilies) {
  const ModelConfig code = Parse(Starcoder2());
  EXPECT_EQ(code.mlp, MlpKind::kGelu);
  EXPECT_TRUE(code.norm_bias && code.mlp_bias && code.attention_bias && code.OutputBias());
  EXPECT_EQ(code.sliding_window, 4096);
  const ModelConfig stable = Parse(StableLm2());
  EXPECT_EQ(stable.rotary_dim, 16);
  EXPECT_TRUE(stable.norm_bias && stable.attention_bias);
  EXPECT_FALSE(stable.OutputBias() || stable.use_parallel_residual);
  const ModelConfig cohere = Parse(Aya());
  EXPECT_TRUE(cohere.use_parallel_residual && cohere.rope_interleave && cohere.tie_word_embeddings);
  EXPECT_FALSE(cohere.norm_bias);
  EXPECT_EQ(cohere.logit_multiplier, 0.0625);
}

// The values are the defaults of transformers 4 and 5.
TEST(FamiliesTest, AbsentFieldsOfLayerNormFamiliesHaveTheirDefaults) {
  const struct {
    Json config;
    const char* field;
    Json value;
    Json other;
  } defaults[] = {
      {Aya(), "layer_norm_eps", 1e-5, 1e-6},
      {Aya(), "logit_scale", 0.0625, 1.0},
      {Aya(), "attention_bias", false, true},
      {Aya(), "tie_word_embeddings", true, false},
      {StableLm2(), "layer_norm_eps", 1e-5, 1e-6},
      {StableLm2(), "partial_rotary_factor", 0.25, 0.5},
      {StableLm2(), "rope_theta", 10000.0, 1000.0},
      {StableLm2(), "use_parallel_residual", false, true},
      {StableLm2(), "use_qkv_bias", false, true},
      {StableLm2(), "tie_word_embeddings", false, true},
      {Starcoder2(), "norm_epsilon", 1e-5, 1e-6},
      {Starcoder2(), "rope_theta", 10000.0, 1000.0},
      {Starcoder2(), "use_bias", true, false},
      {Starcoder2(), "tie_word_embeddings", true, false},
  };
  for (const auto& [config, field, value, other] : defaults) {
    const std::string absent = ToJson(Parse(Without(config, {field})));
    EXPECT_EQ(absent, ToJson(Parse(With(config, {{field, value}})))) << field;
    EXPECT_NE(absent, ToJson(Parse(With(config, {{field, other}})))) << field;
  }
  EXPECT_EQ(Parse(Without(Starcoder2(), {"sliding_window"})).sliding_window, 0);
}

TEST(FamiliesTest, Olmo2NormsOutputs) {
  const ModelConfig config = Parse(Olmo2());
  EXPECT_FALSE(config.norm_inputs);
  EXPECT_TRUE(config.norm_outputs && config.qk_norm && config.qk_norm_all_heads);
}

TEST(FamiliesTest, Float16IsServedInBfloat16) {
  EXPECT_EQ(Parse(With(SmolLm2(), {{"torch_dtype", "float16"}})).torch_dtype,
            TensorFormat::kBFloat16);
  EXPECT_THAT(Refusal(With(SmolLm2(), {{"torch_dtype", "float8"}})), HasSubstr("\"float16\""));
}

TEST(FamiliesTest, RotationsByTheirNewName) {
  Json renamed = Llama32();
  Json rope = renamed["rope_scaling"];
  rope["rope_theta"] = renamed["rope_theta"];
  renamed.erase("rope_scaling");
  renamed.erase("rope_theta");
  renamed["rope_parameters"] = rope;
  EXPECT_EQ(ToJson(Parse(renamed)), ToJson(Parse(Llama32())));

  // As transformers 5 writes DeepSeek's, with fields of its own.
  Json latent = With(Without(DeepSeekDense(), {"rope_scaling", "rope_theta", "torch_dtype"}),
                     {{"dtype", "bfloat16"}, {"head_dim", 64}, {"mlp_bias", false}});
  latent["rope_parameters"] =
      With(DeepSeekDense()["rope_scaling"], {{"rope_theta", 10000}, {"rope_type", "yarn"}});
  EXPECT_EQ(ToJson(Parse(latent)), ToJson(Parse(DeepSeekDense())));
}

// Up to the context that a model was trained for it turns as if nothing were scaled, and beyond it
// nothing is served.
TEST(FamiliesTest, DynamicScalingChangesNothing) {
  const auto scaled = [](const Json& scaling) {
    return With(SmolLm2(), {{"rope_scaling", scaling}});
  };
  const std::string plain = ToJson(Parse(SmolLm2()));
  EXPECT_EQ(ToJson(Parse(scaled({{"type", "dynamic"}, {"factor", 4.0}}))), plain);
  EXPECT_EQ(ToJson(Parse(scaled({{"rope_type", "dynamic"},
                                 {"factor", 4.0},
                                 {"original_max_position_embeddings", 8192}}))),
            plain);
  EXPECT_EQ(
      Refusal(scaled(
          {{"rope_type", "dynamic"}, {"factor", 4.0}, {"original_max_position_embeddings", 2048}})),
      "config.json: rope_scaling: original_max_position_embeddings is 2048; supported: 8192");
}

// The contexts of other servers: the original one times the factor, unless the config has the
// product already.
TEST(FamiliesTest, RopeScalingExtendsTheContext) {
  struct Scaled {
    int64_t positions;
    Json scaling;
    int64_t context;
    std::string origin;
  };
  const Json original = {{"original_max_position_embeddings", 128}};
  const Json yarn = {{"type", "yarn"}, {"factor", 4.0}};
  const Json linear = {{"type", "linear"}, {"factor", 4.0}};
  const Json llama3 = {
      {"rope_type", "llama3"}, {"factor", 4.0}, {"low_freq_factor", 1}, {"high_freq_factor", 4}};
  const Json ones = std::vector<double>(32, 1.0), twos = std::vector<double>(32, 2.0);
  const Json long_rope = {{"type", "longrope"}, {"short_factor", ones}, {"long_factor", twos}};
  for (const Scaled& c : std::vector<Scaled>{
           {128, With(yarn, original), 512, "128 times the factor 4.0 of rope_scaling (yarn)"},
           {512, With(yarn, original), 512, "max_position_embeddings"},
           {160, With(yarn, original), 512, "128 times the factor 4.0 of rope_scaling (yarn)"},
           {128, yarn, 512, "128 times the factor 4.0 of rope_scaling (yarn)"},
           {128, linear, 512, "128 times the factor 4.0 of rope_scaling (linear)"},
           {512, With(linear, original), 512, "max_position_embeddings"},
           {128, With(linear, {{"factor", 2.5}}), 320,
            "128 times the factor 2.5 of rope_scaling (linear)"},
           {128, With(linear, {{"factor", 0.5}}), 128, "max_position_embeddings"},
           {1 << 20, With(linear, {{"factor", 1e6}}), 1 << 24,
            "1048576 times the factor 1000000.0 of rope_scaling (linear)"},
           {128, With(llama3, original), 128, "max_position_embeddings"},
           {128,
            {{"type", "dynamic"}, {"factor", 4.0}},
            128,
            "max_position_embeddings, beyond which rope_scaling (dynamic) is not served; \"yarn\" "
            "would extend it"},
           {512, With(long_rope, original), 128,
            "original_max_position_embeddings, beyond which long_factor is not served"},
           {512, With(With(long_rope, original), {{"long_factor", ones}}), 512,
            "max_position_embeddings"},
       }) {
    const Json config =
        With(SmolLm2(), {{"max_position_embeddings", c.positions}, {"rope_scaling", c.scaling}});
    const PublishedConfig published = ParsePublishedConfig(JsonFields(config, "config.json"));
    EXPECT_EQ(published.config.max_position_embeddings, c.context) << c.scaling;
    EXPECT_EQ(published.context_origin, c.origin) << c.scaling;
  }
}

// Fields that say nothing about the computation, with any value.
TEST(FamiliesTest, FieldsThatChangeNothingAreIgnored) {
  const std::vector<const char*> of_all = {"_name_or_path",
                                           "architectures",
                                           "attention_dropout",
                                           "auto_map",
                                           "bos_token_id",
                                           "do_sample",
                                           "eos_token_id",
                                           "gradient_checkpointing",
                                           "id2label",
                                           "initializer_range",
                                           "max_length",
                                           "num_labels",
                                           "output_past",
                                           "pad_token_id",
                                           "pretraining_tp",
                                           "task_specific_params",
                                           "temperature",
                                           "tokenizer_class",
                                           "top_p",
                                           "transformers.js_config",
                                           "transformers_version",
                                           "use_cache"};
  const std::vector<std::pair<Json, std::vector<const char*>>> own = {
      {SmolLm2(), {"max_sequence_length", "rope_interleaved", "sliding_window"}},
      {Mistral(), {"attention_bias", "mlp_bias"}},
      {Qwen25(), {"attention_bias", "mlp_bias"}},
      {Qwen3(), {"mlp_bias"}},
      {Gpt2(), {"attn_pdrop", "n_ctx", "reorder_and_upcast_attn", "summary_type"}},
      {DeepSeekDense(), {"head_dim", "n_shared_experts", "qk_head_dim", "rope_interleave"}},
      {MiniCpm3(), {"head_dim", "qk_head_dim"}},
      {Plm(), {"head_dim", "qk_head_dim"}},
      {Phi3Mini(), {"embd_pdrop", "resid_pdrop"}},
      {Granite(), {}},
      {SmolLm3(), {"max_window_layers"}},
      {Gemma(), {}},
      {published::Gemma2(), {"cache_implementation", "sliding_window_size"}},
      {published::Gemma3(), {"cache_implementation"}},
      {Starcoder2(), {"layer_norm_epsilon", "residual_dropout", "scale_attn_weights"}},
      {StableLm2(), {"hidden_dropout"}},
      {Olmo2(), {}},
      {Aya(), {}}};
  for (const auto& [config, fields] : own) {
    const std::string plain = ToJson(Parse(config));
    const auto expect_ignored = [&, &from = config](const char* field) {
      for (const Json& value : {Json(7), Json("x"), Json{{"a", 1}}}) {
        EXPECT_EQ(ToJson(Parse(With(from, {{field, value}}))), plain) << field << " " << value;
      }
    };
    for (const char* field : of_all) expect_ignored(field);
    for (const char* field : fields) expect_ignored(field);
    EXPECT_EQ(ToJson(Parse(With(config, {{"pruned_heads", Json::object()}}))), plain);
  }
}

struct Sizes {
  const char* name;
  Json config;
  AttentionKind kind;
  int64_t layers, heads, groups, head_dim, positions, vocab;
};

TEST(FamiliesTest, EveryPublishedOne) {
  constexpr AttentionKind kMha = AttentionKind::kMha, kGqa = AttentionKind::kGqa,
                          kMla = AttentionKind::kMla;
  const std::vector<Sizes> all = {
      {"llama-7b", published::Llama1(), kMha, 32, 32, 32, 128, 2048, 32000},
      {"Llama-2-7b", published::Llama2(), kMha, 32, 32, 32, 128, 4096, 32000},
      {"Llama-3-8B", published::Llama3(), kGqa, 32, 32, 8, 128, 8192, 128256},
      {"Llama-3.1-8B", published::Llama31(), kGqa, 32, 32, 8, 128, 131072, 128256},
      {"Llama-3.2-1B", Llama32(), kGqa, 16, 32, 8, 64, 131072, 128256},
      {"TinyLlama-1.1B", published::TinyLlama(), kGqa, 22, 32, 4, 64, 2048, 32000},
      {"SmolLM-135M", published::SmolLm(), kGqa, 30, 9, 3, 64, 2048, 49152},
      {"SmolLM2-135M", SmolLm2(), kGqa, 30, 9, 3, 64, 8192, 49152},
      {"Mistral-7B-v0.1", Mistral(), kGqa, 32, 32, 8, 128, 32768, 32000},
      {"Mistral-7B-v0.3", published::Mistral03(), kGqa, 32, 32, 8, 128, 32768, 32768},
      {"Qwen2-0.5B", published::Qwen2(), kGqa, 24, 14, 2, 64, 131072, 151936},
      {"Qwen2.5-0.5B", Qwen25(), kGqa, 24, 14, 2, 64, 32768, 151936},
      {"Qwen3-0.6B", Qwen3(), kGqa, 28, 16, 8, 128, 40960, 151936},
      {"gpt2", Gpt2(), kMha, 12, 12, 12, 64, 1024, 50257},
      {"gpt2-xl", published::Gpt2Xl(), kMha, 48, 25, 25, 64, 1024, 50257},
      {"DeepSeek-V2-Lite without experts", DeepSeekDense(), kMla, 27, 16, 16, 128, 163840, 102400},
      {"MiniCPM3-4B", MiniCpm3(), kMla, 62, 40, 40, 64, 32768, 73448},
      {"Phi-3-mini-4k", Phi3Mini(), kMha, 32, 32, 32, 96, 4096, 32064},
      {"granite-3.1-2b", Granite(), kGqa, 40, 32, 8, 64, 131072, 49155},
      {"SmolLM3-3B", SmolLm3(), kGqa, 36, 16, 4, 128, 65536, 128256},
      {"gemma-2b", Gemma(), kGqa, 18, 8, 1, 256, 8192, 256000},
      {"gemma-2-2b", published::Gemma2(), kGqa, 26, 8, 4, 256, 8192, 256000},
      {"gemma-3-1b", published::Gemma3(), kGqa, 26, 4, 1, 256, 32768, 262144},
      {"starcoder2-3b", Starcoder2(), kGqa, 30, 24, 2, 128, 16384, 49152},
      {"stablelm-2-1.6b", StableLm2(), kMha, 24, 32, 32, 64, 4096, 100352},
      {"OLMo-2-1B", Olmo2(), kMha, 16, 16, 16, 128, 4096, 100352},
      {"aya-23-8B", Aya(), kGqa, 32, 32, 8, 128, 8192, 256000},
      {"DeepSeek-V2-Lite", DeepSeekV2Lite(), kMla, 27, 16, 16, 128, 163840, 102400},
      {"DeepSeek-V3", published::DeepSeekV3(), kMla, 61, 128, 128, 128, 163840, 129280},
      {"Moonlight-16B-A3B", published::Moonlight(), kMla, 27, 16, 16, 128, 8192, 163840},
      {"GLM-4.7-Flash", published::Glm47Flash(), kMla, 47, 20, 20, 192, 202752, 154880},
      {"Mixtral-8x7B-v0.1", published::Mixtral(), kGqa, 32, 32, 8, 128, 32768, 32000},
      {"OLMoE-1B-7B", published::Olmoe(), kMha, 16, 16, 16, 128, 4096, 50304},
      {"Qwen1.5-MoE-A2.7B", published::Qwen15Moe(), kMha, 24, 16, 16, 128, 8192, 151936},
      {"Qwen3-30B-A3B", published::Qwen3Moe(), kGqa, 48, 32, 4, 128, 40960, 151936},
      {"granite-3.0-1b-a400m", published::GraniteMoe(), kGqa, 24, 16, 8, 64, 4096, 49155},
      {"PLM-1.8B", Plm(), kMla, 32, 16, 16, 128, 4096, 151936}};
  ASSERT_EQ(all.size(), published::Every().size());
  for (const Sizes& it : all) {
    SCOPED_TRACE(it.name);
    const ModelConfig config = Parse(it.config);
    EXPECT_EQ(config.attention, it.kind);
    EXPECT_EQ(config.num_hidden_layers, it.layers);
    EXPECT_EQ(config.num_attention_heads, it.heads);
    EXPECT_EQ(config.num_key_value_heads, it.groups);
    EXPECT_EQ(config.head_dim, it.head_dim);
    EXPECT_EQ(config.max_position_embeddings, it.positions);
    EXPECT_EQ(config.vocab_size, it.vocab);
    const std::string text = ToJson(config);
    EXPECT_EQ(ToJson(ParseModelConfig(text, "config.json")), text);
  }
}

struct Case {
  Json config;
  std::string field, allowed;
};

TEST(FamiliesTest, RefusalsOfKnownFamiliesSayWhatTheyNeed) {
  const auto refusal = [](const Json& config) {
    const std::string text =
        RefusalOf<LoadError>([&] { ParseModelConfig(config.dump(), "config.json"); });
    return text.substr(0, text.find("; supported: \"triptych\", "));
  };
  EXPECT_EQ(
      refusal({{"model_type", "longcat_flash"}}),
      "config.json: model_type is \"longcat_flash\", which needs two attentions in each layer "
      "and experts without weights");
  EXPECT_EQ(refusal({{"model_type", "mistral3"}, {"text_config", {{"model_type", "mistral4"}}}}),
            "config.json: model_type is \"mistral3\" around a text_config of \"mistral4\", which "
            "needs queries scaled by their positions");
  EXPECT_EQ(refusal({{"model_type", "kimi_k25"}, {"text_config", {{"model_type", "kimi_k2"}}}}),
            "config.json: model_type is \"kimi_k25\" around a text_config of \"kimi_k2\"");
  EXPECT_EQ(refusal({{"model_type", 7}, {"text_config", {{"model_type", {1, 2}}}}}),
            "config.json: model_type is 7 around a text_config of [1,2]");
  EXPECT_EQ(refusal({{"architectures", {"LongcatCausalLM"}}}),
            "config.json: model_type is missing");
}

TEST(FamiliesTest, UnknownFieldsThatChangeTheComputationAreRefused) {
  const auto scaled = [](const Json& scaling) {
    return With(SmolLm2(), {{"rope_scaling", scaling}});
  };
  const Json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}};
  const std::vector<Case> cases = {
      {With(SmolLm2(), {{"model_type", "mamba"}}), "model_type", "\"qwen3\""},
      {With(published::DeepSeekV3(), {{"qk_latent_layernorm", false}}),
       "qk_latent_layernorm is false", "true with q_lora_rank"},
      {With(SmolLm2(), {{"hidden_act", "gelu"}}), "hidden_act is \"gelu\"", "\"silu\""},
      {With(SmolLm2(), {{"quantization_config", {{"quant_method", "hqq"}}}}),
       "quantization_config: quant_method is \"hqq\"", "supported: \"gptq\""},
      {With(SmolLm2(), {{"num_local_experts", 8}}), "num_local_experts", "not a field"},
      {With(SmolLm2(), {{"partial_rotary_factor", 0.5}}), "partial_rotary_factor is 0.5", "1.0"},
      {With(SmolLm2(), {{"is_encoder_decoder", true}}), "is_encoder_decoder is true", "false"},
      {With(SmolLm2(), {{"num_key_value_heads", 4}}), "num_key_value_heads is 4", "must divide"},
      {With(SmolLm2(), {{"head_dim", 63}}), "head_dim is 63", "even"},
      {With(SmolLm2(), {{"max_position_embeddings", (1 << 24) + 1}}), "max_position_embeddings",
       "allowed: an integer from 2 to"},
      {With(SmolLm2(), {{"rope_theta", 0.5}}), "rope_theta", "above 1"},
      {scaled({{"rope_type", "ntk"}}), "rope_type is \"ntk\"", "\"longrope\""},
      {scaled({{"type", "linear"}}), "rope_scaling: factor is missing", ""},
      {scaled({{"type", "linear"}, {"factor", 1e-300}}), "rope_factors (from rope_scaling) is",
       "1e-18"},
      {scaled({{"type", "linear"}, {"factor", 2}, {"new", 1}}), "rope_scaling: new", "not a field"},
      {scaled(With(yarn, {{"mscale", 1.0}})), "mscale is 1.0", "together, or neither"},
      {scaled({{"rope_type", "llama3"},
               {"factor", 8},
               {"low_freq_factor", 4},
               {"high_freq_factor", 4}}),
       "high_freq_factor is 4", "above low_freq_factor"},
      {scaled(7), "rope_scaling is 7", "an object"},
      {With(Llama32(), {{"rope_parameters", Json::object()}}), "rope_parameters",
       "no rope_scaling"},
      {With(Qwen25(), {{"use_mrope", true}}), "use_mrope is true", "false"},
      {With(Gpt2(), {{"activation_function", "relu"}}), "activation_function is \"relu\"",
       "\"gelu_new\""},
      {With(Gpt2(), {{"n_head", 7}}), "n_head is 7", "must divide n_embd"},
      {With(Gpt2(), {{"add_cross_attention", true}}), "add_cross_attention", "false"},
      {With(Gpt2(), {{"pruned_heads", {{"0", {1}}}}}), "pruned_heads is {\"0\":[1]}", "{}"},
      {With(DeepSeekDense(), {{"num_key_value_heads", 4}}), "num_key_value_heads is 4", "16"},
      {With(MiniCpm3(), {{"v_head_dim", 32}}), "v_head_dim is 32", "64"},
      {With(MiniCpm3(), {{"scale_depth", 1e-300}}), "scale_depth is 1e-300", "0.001"},
      {With(MiniCpm3(), {{"rms_norm_eps", 0.5}}),
       "rms_norm_eps * num_hidden_layers / scale_depth^2 is", "at most 1"},
      {With(Plm(), {{"hidden_act", "silu"}}), "hidden_act is \"silu\"", "\"relu2\""},
      {With(Plm(), {{"hidden_act", "relu"}}), "hidden_act is \"relu\"", "\"relu2\""},
      {With(Plm(), {{"mlp_bias", true}}), "mlp_bias is true", "false"},
      {With(Plm(), {{"num_key_value_heads", 4}}), "num_key_value_heads is 4", "16"},
      {With(Plm(), {{"n_routed_experts", 8}}), "n_routed_experts", "not a field"},
      {With(Phi3Mini(), {{"partial_rotary_factor", 0.45}}), "partial_rotary_factor is 0.45",
       "even number of the 96 elements"},
      {With(Phi3Mini(), {{"partial_rotary_factor", 2}}), "partial_rotary_factor is 2", "at most 1"},
      {With(Phi3Mini(), {{"attention_bias", true}}), "attention_bias is true", "false"},
      {With(Phi3Mini(), {{"mlp_bias", true}}), "mlp_bias is true", "false"},
      {With(Granite(), {{"residual_multiplier", 0}}), "residual_multiplier is 0", "0.001"},
      {With(Granite(), {{"residual_multiplier", 0.001}}),
       "rms_norm_eps / residual_multiplier^2 is 10", "at most 1"},
      {With(Granite(), {{"logits_scaling", -8}}), "logits_scaling is -8", "0.001"},
      {With(SmolLm3(), {{"no_rope_layers", {1, 0}}}), "no_rope_layers is [1,0]",
       "0 or 1 for each of num_hidden_layers = 36"},
      {With(SmolLm3(), {{"no_rope_layers", {7}}}), "no_rope_layers is 7", "from 0 to 1"},
      {With(SmolLm3(), {{"no_rope_layer_interval", 0}}), "no_rope_layer_interval is 0", "from 1"},
      {With(Gemma(), {{"hidden_act", "silu"}}), "hidden_act is \"silu\"", "\"gelu\""},
      {With(Gemma(), {{"hidden_activation", "gelu"}}), "hidden_activation is \"gelu\"",
       "\"gelu_pytorch_tanh\""},
      {With(Gemma(), {{"use_bidirectional_attention", true}}), "use_bidirectional_attention",
       "false"},
      {With(Starcoder2(), {{"mlp_type", "gated"}}), "mlp_type is \"gated\"", "\"default\""},
      {With(Starcoder2(), {{"hidden_act", "gelu"}}), "hidden_act is \"gelu\"",
       "\"gelu_pytorch_tanh\""},
      {With(StableLm2(), {{"qk_layernorm", true}}), "qk_layernorm is true", "false"},
      {With(Olmo2(), {{"clip_qkv", 8}}), "clip_qkv", "not a field"},
      {With(Aya(), {{"use_qk_norm", true}}), "use_qk_norm is true", "false"},
  };
  for (const auto& [config, field, allowed] : cases) {
    EXPECT_THAT(Refusal(config),
                AllOf(HasSubstr("config.json"), HasSubstr(field), HasSubstr(allowed)));
  }
  for (const auto& [config, field] :
       std::vector<std::pair<Json, std::string>>{{Mistral(), "num_key_value_heads"},
                                                 {Qwen3(), "head_dim"},
                                                 {DeepSeekDense(), "q_lora_rank"},
                                                 {MiniCpm3(), "scale_emb"},
                                                 {Plm(), "rope_theta"},
                                                 {Plm(), "v_head_dim"},
                                                 {Phi3Mini(), "rms_norm_eps"},
                                                 {SmolLm3(), "rope_theta"},
                                                 {Gemma(), "head_dim"},
                                                 {StableLm2(), "num_key_value_heads"},
                                                 {Aya(), "rope_theta"},
                                                 {SmolLm2(), "hidden_size"}}) {
    EXPECT_EQ(Refusal(Without(config, {field.c_str()})), "config.json: " + field + " is missing");
  }
}

// Experts are no matter where no layer has them.
TEST(FamiliesTest, OnlyDenseLayers) {
  const Json config = With(DeepSeekV2Lite(), {{"first_k_dense_replace", 27}});
  EXPECT_EQ(ToJson(Parse(config)), ToJson(Parse(DeepSeekDense())));
}

}  // namespace
}  // namespace triptych::checkpoint::families_test
