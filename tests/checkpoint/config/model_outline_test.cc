#include "engine/checkpoint/config/model_outline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "engine/base/file.h"
#include "engine/checkpoint/config/config_file.h"
#include "engine/model/cached_layers.h"
#include "tests/support/published_configs.h"
#include "tests/support/refusal.h"

namespace triptych::checkpoint::model_outline_test {
namespace {

using testing::HasSubstr;

ModelOutline Outline(const Json& config) {
  return ParseModelOutline(JsonFields(config, "config.json"));
}

Json Published(const std::string& name) {
  const auto file = std::filesystem::path(TRIPTYCH_PLANNED_CONFIGS) / (name + ".json");
  return ParseJson(ReadText(file, 1 << 20), name);
}

// ---- Published configs, by hand ----------------------------------------------------------------

struct ByHand {
  const char* file;   // in tests/tools/plan/configs: the fields that matter, as published
  const char* model;  // the repository with the whole file: config.json, unless the row says so
  // Layers times elements of a row, and 2 bytes, worked out by hand; the part of windows; the
  // constant part of a sequence, in elements.
  int64_t bfloat16;
  int64_t windowed = 0;
  int64_t state = 0;
  bool served = true;
};

// Numbers, not products, so that a mistake in one is not a mistake in both.
const std::vector<ByHand> kByHand = {
    {"llama-3.1-8b", "meta-llama/Llama-3.1-8B", 131'072},                // 32 x 2 x 8 x 128 x 2
    {"llama-3.1-70b", "meta-llama/Llama-3.1-70B", 327'680},              // 80 x 2 x 8 x 128 x 2
    {"llama-3.2-1b", "meta-llama/Llama-3.2-1B", 32'768},                 // 16 x 2 x 8 x 64 x 2
    {"llama-2-7b", "meta-llama/Llama-2-7b-hf", 524'288},                 // 32 x 2 x 32 x 128 x 2
    {"mistral-7b-v0.1", "mistralai/Mistral-7B-v0.1", 131'072, 131'072},  // all of 4096 positions
    {"mixtral-8x7b", "mistralai/Mixtral-8x7B-v0.1", 131'072},            // 32 x 2 x 8 x 128 x 2
    {"qwen2.5-7b", "Qwen/Qwen2.5-7B-Instruct", 57'344},                  // 28 x 2 x 4 x 128 x 2
    {"qwen3-8b", "Qwen/Qwen3-8B", 147'456},                              // 36 x 2 x 8 x 128 x 2
    {"qwen3-30b-a3b", "Qwen/Qwen3-30B-A3B", 98'304},                     // 48 x 2 x 4 x 128 x 2
    {"gemma-2-9b", "google/gemma-2-9b", 344'064, 172'032},  // 42 (21) x 2 x 8 x 256 x 2
    {"gemma-3-27b", "google/gemma-3-27b-it", 507'904, 425'984, 0, false},  // 62 (52) x 8192
    {"phi-4", "microsoft/phi-4", 204'800},                                 // 40 x 2 x 10 x 128 x 2
    {"gpt-oss-20b", "openai/gpt-oss-20b", 49'152, 24'576, 0, false},  // 24 (12) x 2 x 8 x 64 x 2
    {"deepseek-v2-lite", "deepseek-ai/DeepSeek-V2-Lite", 31'104},     // 27 x 576 x 2
    {"deepseek-v3", "deepseek-ai/DeepSeek-V3", 70'272},               // 61 x 576 x 2
    {"deepseek-v3.2", "deepseek-ai/DeepSeek-V3.2-Exp", 85'888, 0, 0,
     false},                                             // 61 x (576 + 128) x 2
    {"kimi-k2", "moonshotai/Kimi-K2-Instruct", 70'272},  // 61 x 576 x 2
    {"glm-4.7-flash", "zai-org/GLM-4.7-Flash", 54'144},  // 47 x 576 x 2
    {"longcat-flash", "meituan-longcat/LongCat-Flash-Chat", 64'512, 0, 0,
     false},  // 28 x 2 x 576 x 2
    {"mistral-large-3", "mistralai/Mistral-Large-3-675B-Instruct-2512", 70'272, 0, 0,
     false},  // params.json; 61 x 576 x 2
    {"mistral-small-4", "mistralai/Mistral-Small-4-119B-2603", 23'040, 0, 0,
     false},                                                // 36 x (256 + 64) x 2
    {"minicpm3-4b", "openbmb/MiniCPM3-4B", 35'712},         // 62 x (256 + 32) x 2
    {"olmoe-1b-7b", "allenai/OLMoE-1B-7B-0924", 131'072},   // 16 x 2 x 16 x 128 x 2
    {"falcon-7b", "tiiuae/falcon-7b", 8'192, 0, 0, false},  // 32 x 2 x 1 x 64 x 2
    // 35 layers, of which 15 share: 20 (16 with a window) x 2 x 2 x 256 x 2
    {"gemma-3n-e4b", "google/gemma-3n-E4B-it", 40'960, 32'768, 0, false},
    // 4 x 2 x 8 x 128 x 2; 24 states of 128 x 64 x 128 and 3 taps of 8192 + 2048 channels
    {"nemotron-h-8b", "nvidia/Nemotron-H-8B-Base-8K", 16'384, 0, 25'903'104, false},
    // 12 x 2 x 2 x 256 x 2; 36 states of 32 x 128 x 128 and 3 taps of 4096 + 4096 channels
    {"qwen3-next-80b-a3b", "Qwen/Qwen3-Next-80B-A3B-Instruct", 24'576, 0, 19'759'104, false},
};

int64_t Windowed(const std::vector<CachedLayers>& cached) {
  int64_t bytes = 0;
  for (const CachedLayers& group : cached) {
    if (group.window > 0) bytes += BytesPerPosition({group}, CacheFormat::kBFloat16);
  }
  return bytes;
}

class ByHandTest : public testing::TestWithParam<ByHand> {};

TEST_P(ByHandTest, BytesAreThoseWorkedOut) {
  const auto& [file, model, bfloat16, windowed, state, served] = GetParam();
  SCOPED_TRACE(model);
  const Json config = Published(file);
  const ModelOutline outline = Outline(config);
  EXPECT_EQ(BytesPerPosition(outline.cached, CacheFormat::kBFloat16), bfloat16);
  EXPECT_EQ(BytesPerPosition(outline.cached, CacheFormat::kFloat32), 2 * bfloat16);
  // 34 bytes for 32 numbers: the rows of all of these are multiples of 32.
  EXPECT_EQ(BytesPerPosition(outline.cached, CacheFormat::kInt8) * 64, bfloat16 * 34);
  EXPECT_EQ(Windowed(outline.cached), windowed);
  EXPECT_EQ(outline.state_elements.value_or(0), state);
  if (!served) {
    EXPECT_THROW(ParseModelConfig(config.dump(), file), LoadError);
    return;
  }
  const ModelConfig own = ParseModelConfig(config.dump(), file);
  EXPECT_EQ(outline.cached, CachedLayersOf(own));
  EXPECT_EQ(BytesPerPosition(outline.cached, CacheFormat::kInt8),
            MakeCacheGeometry(own, CacheFormat::kInt8, 16).BytesPerPosition());
}

INSTANTIATE_TEST_SUITE_P(Published, ByHandTest, testing::ValuesIn(kByHand), [](const auto& test) {
  std::string name = test.param.file;
  for (char& letter : name) letter = letter == '-' || letter == '.' ? '_' : letter;
  return name;
});

// Totals that publishers state, in billions.
TEST(OutlineWeightsTest, AreThoseThatPublishersState) {
  const auto billions = [](const std::string& name, double all, double active, double tolerance) {
    const auto weights = Outline(Published(name)).weights;
    ASSERT_TRUE(weights) << name;
    EXPECT_NEAR(weights->All() / 1e9, all, all * tolerance) << name;
    EXPECT_NEAR(weights->Active() / 1e9, active, active * tolerance) << name;
  };
  billions("llama-3.1-8b", 8.03, 8.03, 0.002);
  billions("llama-3.1-70b", 70.55, 70.55, 0.002);
  billions("llama-3.2-1b", 1.236, 1.236, 0.002);
  billions("mixtral-8x7b", 46.7, 12.9, 0.002);
  billions("qwen3-30b-a3b", 30.5, 3.35, 0.005);
  billions("gemma-2-9b", 9.24, 9.24, 0.002);
  billions("deepseek-v2-lite", 15.7, 2.66, 0.02);
  billions("deepseek-v3", 671, 37.5, 0.02);
  billions("kimi-k2", 1026, 32.9, 0.02);
  billions("olmoe-1b-7b", 6.92, 1.28, 0.01);
  billions("falcon-7b", 6.92, 6.92, 0.002);
  billions("gpt-oss-20b", 20.9, 4.19, 0.01);
  billions("longcat-flash", 560, 31.3, 0.03);  // active: from 18.6 to 31.3
  billions("mistral-large-3", 673, 39, 0.03);  // without 2.5 of an encoder of images
  billions("mistral-small-4", 119, 6.5, 0.03);
  for (const char* unknown : {"gemma-3-27b", "gemma-3n-e4b", "nemotron-h-8b"}) {
    const ModelOutline outline = Outline(Published(unknown));
    EXPECT_FALSE(outline.weights) << unknown;
    EXPECT_THAT(outline.unknown,
                testing::Contains(HasSubstr("the number of weights is not known")));
  }
}

// Every published family that is served: its own reader has the same rows and context.
TEST(ModelOutlineTest, AgreesWithTheLoaderOnServedFamilies) {
  for (const Json& config :
       {published::Llama1(),        published::Llama2(),     published::TinyLlama(),
        published::Llama31(),       published::Llama32(),    published::SmolLm2(),
        published::Mistral(),       published::Qwen25(),     published::Qwen3(),
        published::Gpt2(),          published::Gpt2Xl(),     published::DeepSeekV2Lite(),
        published::DeepSeekDense(), published::MiniCpm3(),   published::Plm(),
        published::Phi3Mini(),      published::Granite(),    published::SmolLm3(),
        published::Gemma(),         published::Gemma2(),     published::Gemma3(),
        published::Starcoder2(),    published::StableLm2(),  published::Olmo2(),
        published::Aya(),           published::DeepSeekV3(), published::Moonlight(),
        published::Glm47Flash(),    published::Mixtral(),    published::Olmoe(),
        published::Qwen15Moe(),     published::Qwen3Moe(),   published::GraniteMoe()}) {
    SCOPED_TRACE(config.at("model_type").get<std::string>());
    const ModelConfig served = ParseModelConfig(config.dump(), "config.json");
    const ModelOutline outline = Outline(config);
    EXPECT_EQ(outline.cached, CachedLayersOf(served));
    ASSERT_EQ(outline.as_mha.size(), 1u);
    EXPECT_EQ(outline.as_mha[0].RowElements(), MhaRowElements(served));
    EXPECT_TRUE(outline.weights);
    EXPECT_EQ(outline.unknown, std::vector<std::string>());
  }
}

// ---- Layers that cache otherwise --------------------------------------------------------------

Json Dense(const Json& fields) {  // 8 layers of 4 heads of 16
  return published::With({{"num_hidden_layers", 8},
                          {"hidden_size", 64},
                          {"num_attention_heads", 4},
                          {"vocab_size", 100},
                          {"intermediate_size", 100},
                          {"max_position_embeddings", 1000}},
                         fields);
}

std::string FormulaOf(const Json& config) {
  return CacheFormula(Outline(config).cached, CacheFormat::kBFloat16);
}

TEST(ModelOutlineTest, LayersByTheirFields) {
  const std::string every = " layers x 2 x 4 heads x 16 x 2 bytes";
  EXPECT_EQ(FormulaOf(Dense(Json::object())), "2,048 bytes a position = 8" + every);
  EXPECT_EQ(FormulaOf(Dense({{"full_attention_interval", 4}})), "512 bytes a position = 2" + every);
  EXPECT_EQ(FormulaOf(Dense({{"attn_layer_period", 8}, {"attn_layer_offset", 4}})),
            "256 bytes a position = 1 layer x 2 x 4 heads x 16 x 2 bytes");
  EXPECT_EQ(FormulaOf(Dense({{"attn_layer_indices", {1, 5, 7}}})),
            "768 bytes a position = 3" + every);
  EXPECT_EQ(FormulaOf(Dense({{"attn_type_list", {0, 1, 0, 1, 0, 0, 0, 0}}})),
            "512 bytes a position = 2" + every);
  EXPECT_EQ(FormulaOf(Dense({{"linear_attn_config", {{"full_attn_layers", {4, 8}}}}})),
            "512 bytes a position = 2" + every);
  EXPECT_EQ(FormulaOf(Dense({{"hybrid_override_pattern", "M-*-ME*E"}})),
            "512 bytes a position = 2" + every);
  EXPECT_EQ(FormulaOf(Dense({{"use_cla", true}, {"cla_share_factor", 2}})),
            "1,024 bytes a position = 4" + every);
  EXPECT_EQ(FormulaOf(Dense({{"num_kv_shared_layers", 6}})), "512 bytes a position = 2" + every);
  EXPECT_EQ(
      FormulaOf(Dense({{"sliding_window", 100}, {"sliding_window_pattern", "LLLG"}})),
      "2,048 bytes a position = 8" + every + ", of which 1,536 only for the last 100 positions");
  EXPECT_EQ(
      FormulaOf(Dense({{"attention_chunk_size", 100}, {"model_type", "llama4_text"}})),
      "2,048 bytes a position = 8" + every + ", of which 1,536 only for the last 100 positions");
  EXPECT_EQ(FormulaOf(Dense({{"sliding_window", 1000}})), "2,048 bytes a position = 8" + every);
  EXPECT_EQ(FormulaOf(Dense({{"v_head_dim", 8}, {"num_key_value_heads", 2}})),
            "768 bytes a position = 8 layers x 2 heads x (16 + 8) x 2 bytes");
  EXPECT_EQ(FormulaOf(Dense({{"attn_config", {{"kv_n_heads", 1}}}})),
            "512 bytes a position = 8 layers x 2 x 1 head x 16 x 2 bytes");
  EXPECT_TRUE(
      Outline(Dense({{"layer_types", std::vector<std::string>(8, "mamba")}})).cached.empty());
}

// As published, and as transformers writes it.
TEST(ModelOutlineTest, LayersOfTwoAttentions) {
  const Json longcat = Published("longcat-flash");
  const ModelOutline outline = Outline(longcat);
  EXPECT_EQ(CacheFormula(outline.cached, CacheFormat::kBFloat16),
            "64,512 bytes a position = 56 layers x (512 + 64) x 2 bytes");
  EXPECT_THAT(
      outline.facts,
      testing::ElementsAre(
          "each of 28 layers has two attentions, which are counted as layers",
          "a token chooses 12 of 768 experts, 256 of which have no weights: it uses at most those "
          "printed"));
  const ModelOutline written =
      Outline(published::With(published::Without(longcat, {"model_type"}),
                              {{"num_hidden_layers", 56}, {"num_key_value_heads", 64}}));
  EXPECT_EQ(written.cached, outline.cached);
  EXPECT_EQ(written.as_mha, outline.as_mha);
  EXPECT_EQ(written.weights->All(), outline.weights->All());
  EXPECT_EQ(Outline(published::With(longcat, {{"ngram_vocab_size_ratio", 78}})).unknown,
            std::vector<std::string>({"the number of weights is not known (tables of n-grams)"}));
}

TEST(ModelOutlineTest, SaysThatEncodersAreLeftOut) {
  const std::string alone = ": the language model alone, without encoders of images or sound";
  EXPECT_THAT(Outline(Published("gemma-3-27b")).facts,
              testing::Contains("read from text_config" + alone));
  const Json large = Published("mistral-large-3");
  EXPECT_THAT(Outline(large).facts, testing::ElementsAre("read without vision_encoder" + alone));
  EXPECT_THAT(Outline(published::With(large, {{"vision_encoder", nullptr}})).facts,
              testing::IsEmpty());
}

TEST(ModelOutlineTest, SaysWhatTheFileDoesNotTell) {
  const ModelOutline states = Outline(Dense({{"full_attention_interval", 4}}));
  EXPECT_EQ(states.state_layers, 6);
  EXPECT_FALSE(states.state_elements);
  EXPECT_THAT(states.unknown,
              testing::Contains("the size of these states is not known from the file's fields"));
  const ModelOutline beside = Outline(Dense({{"mamba_d_state", 16}}));
  EXPECT_THAT(beside.unknown,
              testing::Contains("states of fields such as mamba_d_state are not counted"));
  Json without = Dense(Json::object());
  without.erase("vocab_size");
  EXPECT_THAT(
      Outline(without).unknown,
      testing::ElementsAre("the number of weights is not known (vocab_size is not in the file)"));
  without.erase("max_position_embeddings");
  EXPECT_FALSE(Outline(without).context);
}

TEST(CachedLayersTest, DevicesReplicateFewHeadsAndLatents) {
  const auto formula = [](const std::string& name, int64_t devices) {
    return CacheFormula(OnEachDevice(Outline(Published(name)).cached, devices),
                        CacheFormat::kBFloat16);
  };
  EXPECT_EQ(formula("llama-3.1-8b", 4),
            "32,768 bytes a position = 32 layers x 2 x 2 heads x 128 x 2 bytes");
  EXPECT_EQ(formula("llama-3.1-8b", 16),
            "16,384 bytes a position = 32 layers x 2 x 1 head x 128 x 2 bytes");
  EXPECT_EQ(formula("deepseek-v3", 8),
            "70,272 bytes a position = 61 layers x (512 + 64) x 2 bytes");
  const auto refused = [](const std::string& name, int64_t devices) {
    return RefusalOf<std::invalid_argument>(
        [&] { OnEachDevice(Outline(Published(name)).cached, devices); });
  };
  EXPECT_EQ(refused("llama-3.1-8b", 3),
            "3 devices cannot share 32 heads; allowed: a divisor of them");
  EXPECT_EQ(refused("phi-4", 4),
            "4 devices cannot share 10 key/value heads; allowed: a divisor or a multiple of them");
}

TEST(CachedLayersTest, FormulasOfIntegersCountScalesAndPadding) {
  const CachedLayers odd{.row = CachedRow::kLatent, .layers = 2, .parts = {33}};
  EXPECT_EQ(CacheFormula({odd}, CacheFormat::kInt8),
            "76 bytes a position = 2 layers x (33 x 1 byte + 1 byte + 2 scales x 2 bytes)");
  const CachedLayers other{.row = CachedRow::kLatent, .layers = 1, .parts = {64}};
  EXPECT_EQ(CacheFormula({odd, other}, CacheFormat::kFloat32),
            "520 bytes a position = 2 layers x 33 x 4 bytes + 1 layer x 64 x 4 bytes");
}

// ---- Refusals -----------------------------------------------------------------------------------

TEST(ModelOutlineTest, AbsurdConfigsGiveOneClearLine) {
  const auto expect = [](const Json& fields, const std::string& what) {
    const std::string refusal = RefusalOf<LoadError>([&] { Outline(Dense(fields)); });
    EXPECT_THAT(refusal, HasSubstr("config.json: " + what)) << fields;
    EXPECT_EQ(refusal.find('\n'), refusal.npos);
    EXPECT_LT(refusal.size(), 500u);
  };
  expect({{"num_attention_heads", 0}}, "num_attention_heads is 0; allowed: an integer from 1");
  expect({{"num_attention_heads", -4}}, "num_attention_heads is -4; allowed");
  expect({{"num_hidden_layers", 1'000'000'000'000'000'000}},
         "num_hidden_layers is 1000000000000000000");
  expect({{"num_hidden_layers", uint64_t{1} << 63}}, "num_hidden_layers is 9223372036854775808");
  expect({{"num_hidden_layers", "many"}}, "num_hidden_layers is \"many\"; allowed: an integer");
  expect({{"num_hidden_layers", nullptr}}, "num_hidden_layers is missing");
  expect({{"sliding_window", -1}}, "sliding_window is -1; allowed");
  expect({{"num_key_value_heads", 3}},
         "num_key_value_heads is 3; allowed: a divisor of the 4 heads");
  expect({{"num_attention_heads", 3}}, "num_attention_heads is 3; it must divide the width 64");
  expect({{"layer_types", {"full_attention"}}}, "layer_types is a list of 1; allowed: a list of 8");
  expect({{"layer_types", std::vector<std::string>(8, "psychic")}}, "layer_types is \"psychic\"");
  expect({{"layer_types", 7}}, "layer_types is 7; allowed: a list");
  expect({{"hybrid_override_pattern", "M*"}},
         "hybrid_override_pattern is \"M*\"; allowed: a letter");
  expect({{"attn_layer_indices", {8}}}, "attn_layer_indices is 8; allowed: an integer from 0 to 7");
  expect({{"num_kv_shared_layers", 8}},
         "num_kv_shared_layers is 8; allowed: an integer from 0 to 7");
  expect({{"compress_ratios", {4, 128}}}, "compress_ratios is [4,128]; the cache of such layers");
  expect({{"cli_factor", 2}}, "cli_factor is 2; the cache of such layers");
  expect({{"zero_expert_num", 1}}, "num_layers is missing");
  expect({{"model_type", "longcat_flash_ngram"}, {"num_layers", 4}}, "zero_expert_num is missing");
  expect({{"model_type", "longcat_flash"}, {"num_layers", 4}, {"zero_expert_num", nullptr}},
         "zero_expert_num is missing");
  expect({{"num_layers", 4}, {"zero_expert_num", -1}}, "zero_expert_num is -1; allowed");
  expect({{"moe", {{"num_experts", 8}, {"num_experts_per_tok", 9}}}},
         "moe: num_experts_per_tok is 9; allowed: an integer from 1 to 8");
  expect({{"is_encoder_decoder", true}}, "is_encoder_decoder is true; supported: decoders");
  expect({{"num_local_experts", 8}, {"num_experts_per_tok", 9}}, "num_experts_per_tok is 9");
  expect({{"model_type", std::string(10'000, 'x')}}, "model_type is ");
  expect({{"kv_lora_rank", 16}, {"qk_nope_head_dim", 8}, {"index_head_dim", 8}},
         "index_n_heads is missing");
  EXPECT_EQ(RefusalOf<LoadError>([] { Outline(Json::array()); }),
            "config.json: must hold a JSON object");
  // The widest of everything: a clear line instead of an overflow.
  expect({{"num_hidden_layers", 1024},
          {"num_attention_heads", 1 << 20},
          {"head_dim", 1 << 20},
          {"hidden_size", 1 << 20}},
         "a model has ");
}

}  // namespace
}  // namespace triptych::checkpoint::model_outline_test
