#include "engine/checkpoint/config/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"

namespace triptych::checkpoint::config_file_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::json;

Json Mha() {
  return Json::parse(R"({
    "model_type": "triptych", "attention": "mha", "vocab_size": 258, "hidden_size": 256,
    "intermediate_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 8,
    "max_position_embeddings": 512, "position_embedding": "learned", "norm": "rms_norm",
    "mlp": "swiglu", "torch_dtype": "bfloat16"})");
}

Json With(Json config, const Json& changes) {
  config.update(changes);
  return config;
}

Json Gqa() { return With(Mha(), {{"attention", "gqa"}, {"num_key_value_heads", 2}}); }
Json Mla() { return With(Mha(), {{"attention", "mla"}, {"kv_lora_rank", 64}}); }
Json RopeMla() { return With(Mla(), {{"position_embedding", "rope"}, {"qk_rope_head_dim", 16}}); }

ModelConfig Parse(const Json& config) { return ParseModelConfig(config.dump(), "dir/config.json"); }

std::string Refusal(std::string_view json) {
  return RefusalOf<LoadError>([&] { ParseModelConfig(json, "dir/config.json"); });
}

void ExpectSame(const ModelConfig& a, const ModelConfig& b) {
  EXPECT_EQ(a.vocab_size, b.vocab_size);
  EXPECT_EQ(a.hidden_size, b.hidden_size);
  EXPECT_EQ(a.intermediate_size, b.intermediate_size);
  EXPECT_EQ(a.num_hidden_layers, b.num_hidden_layers);
  EXPECT_EQ(a.num_attention_heads, b.num_attention_heads);
  EXPECT_EQ(a.num_key_value_heads, b.num_key_value_heads);
  EXPECT_EQ(a.head_dim, b.head_dim);
  EXPECT_EQ(a.max_position_embeddings, b.max_position_embeddings);
  EXPECT_EQ(a.attention, b.attention);
  EXPECT_EQ(a.kv_lora_rank, b.kv_lora_rank);
  EXPECT_EQ(a.qk_rope_head_dim, b.qk_rope_head_dim);
  EXPECT_EQ(a.kv_a_layernorm, b.kv_a_layernorm);
  EXPECT_EQ(a.head_grouping, b.head_grouping);
  EXPECT_EQ(a.position_embedding, b.position_embedding);
  EXPECT_EQ(a.rope_theta, b.rope_theta);
  EXPECT_EQ(a.rope_interleave, b.rope_interleave);
  EXPECT_EQ(a.norm, b.norm);
  EXPECT_EQ(a.norm_eps, b.norm_eps);
  EXPECT_EQ(a.norm_bias, b.norm_bias);
  EXPECT_EQ(a.mlp, b.mlp);
  EXPECT_EQ(a.hidden_act, b.hidden_act);
  EXPECT_EQ(a.mlp_bias, b.mlp_bias);
  EXPECT_EQ(a.attention_bias, b.attention_bias);
  EXPECT_EQ(a.tie_word_embeddings, b.tie_word_embeddings);
  EXPECT_EQ(a.torch_dtype, b.torch_dtype);
  ASSERT_EQ(a.quantization.has_value(), b.quantization.has_value());
  if (a.quantization) {
    EXPECT_EQ(a.quantization->format, b.quantization->format);
    EXPECT_EQ(a.quantization->embeddings, b.quantization->embeddings);
  }
}

Json Quantized(const Json& changes) {
  Json quantization = {
      {"quant_method", "triptych"}, {"bits", 8}, {"group_size", 32}, {"embeddings", true}};
  quantization.update(changes);
  return With(Mha(), {{"quantization_config", quantization}});
}

TEST(ModelConfigTest, ReadsAndWritesWhatIsStoredAsIntegers) {
  EXPECT_FALSE(Parse(Mha()).quantization.has_value());
  for (const int bits : {8, 4}) {
    for (const bool embeddings : {true, false}) {
      const ModelConfig config = Parse(Quantized({{"bits", bits}, {"embeddings", embeddings}}));
      ASSERT_TRUE(config.quantization.has_value());
      EXPECT_EQ(config.quantization->format, bits == 8 ? WeightFormat::kInt8 : WeightFormat::kInt4);
      EXPECT_EQ(config.quantization->embeddings, embeddings);
      ExpectSame(ParseModelConfig(ToJson(config), "again"), config);
    }
  }
}

TEST(ModelConfigTest, RefusesOtherQuantizations) {
  for (const Json& changes :
       {Json{{"bits", 3}}, Json{{"bits", "8"}}, Json{{"group_size", 64}},
        Json{{"quant_method", "gptq"}}, Json{{"embeddings", 1}}, Json{{"desc_act", true}}}) {
    EXPECT_THAT(
        Refusal(Quantized(changes).dump()),
        AllOf(HasSubstr("dir/config.json: quantization_config"), HasSubstr("\"bits\": 8 or 4")))
        << changes;
  }
  for (const Json& value : {Json(4), Json::array(), Json::object(), Json(nullptr)}) {
    EXPECT_THAT(Refusal(With(Mha(), {{"quantization_config", value}}).dump()),
                HasSubstr("quantization_config"))
        << value;
  }
}

TEST(ModelConfigTest, FillsInDefaults) {
  const ModelConfig config = Parse(Mha());
  EXPECT_EQ(config.num_key_value_heads, 8);
  EXPECT_EQ(config.head_dim, 32);
  EXPECT_EQ(config.QueryDim(), 32);
  EXPECT_EQ(config.head_grouping, HeadGrouping::kModular);
  EXPECT_EQ(config.rope_theta, 10000);
  EXPECT_TRUE(config.rope_interleave);
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_EQ(config.hidden_act, HiddenAct::kSilu);
  EXPECT_EQ(Parse(With(Mha(), {{"mlp", "gelu"}})).hidden_act, HiddenAct::kGelu);
  EXPECT_EQ(Parse(With(Mha(), {{"mlp", "geglu"}})).hidden_act, HiddenAct::kGelu);
  EXPECT_EQ(Parse(With(Mha(), {{"mlp", "relu2"}})).hidden_act, HiddenAct::kRelu2);
  EXPECT_FALSE(config.norm_bias || config.mlp_bias || config.attention_bias ||
               config.tie_word_embeddings || config.kv_a_layernorm);
  EXPECT_THAT(config.kv_lora_rank, IsEmpty());
  EXPECT_EQ(config.torch_dtype, TensorFormat::kBFloat16);
}

TEST(ModelConfigTest, TakesOneRankOrOnePerLayer) {
  EXPECT_THAT(Parse(Mla()).kv_lora_rank, ElementsAre(64, 64, 64, 64));
  EXPECT_THAT(Parse(With(Mla(), {{"kv_lora_rank", {64, 48, 32, 16}}})).kv_lora_rank,
              ElementsAre(64, 48, 32, 16));
}

TEST(ModelConfigTest, HeadDimFreesTheWidthFromTheHeads) {
  const ModelConfig config =
      Parse(With(Mha(), {{"hidden_size", 250}, {"head_dim", 40}, {"num_attention_heads", 3}}));
  EXPECT_EQ(config.head_dim, 40);
}

TEST(ModelConfigTest, NamesAreThoseOfTheFile) {
  EXPECT_EQ(Name(AttentionKind::kMha), "mha");
  EXPECT_EQ(Name(AttentionKind::kGqa), "gqa");
  EXPECT_EQ(Name(AttentionKind::kMla), "mla");
  EXPECT_EQ(Name(TensorFormat::kFloat32), "float32");
  EXPECT_EQ(Name(TensorFormat::kBFloat16), "bfloat16");
  EXPECT_EQ(Name(WeightFormat::kFloat32), "float32");
  EXPECT_EQ(Name(WeightFormat::kBFloat16), "bfloat16");
  EXPECT_EQ(Name(WeightFormat::kInt8), "int8");
  EXPECT_EQ(Name(WeightFormat::kInt4), "int4");
}

TEST(ModelConfigTest, WritesWhatItReadsBack) {
  const Json everything = {{"head_dim", 24},          {"head_grouping", "contiguous"},
                           {"norm_eps", 1e-6},        {"norm", "layer_norm"},
                           {"norm_bias", true},       {"mlp", "gelu"},
                           {"mlp_bias", true},        {"hidden_act", "gelu_exact"},
                           {"attention_bias", true},  {"tie_word_embeddings", true},
                           {"torch_dtype", "float32"}};
  const Json rope = {
      {"position_embedding", "rope"}, {"rope_theta", 500000.5}, {"rope_interleave", false}};
  const std::vector<Json> configs = {
      Mha(),
      Gqa(),
      Mla(),
      With(Mha(), {{"position_embedding", "sinusoidal"}}),
      With(Mha(), {{"position_embedding", "none"}}),
      With(Mha(), rope),
      With(With(Gqa(), rope), everything),
      With(With(RopeMla(), rope), everything),
      With(RopeMla(), {{"kv_lora_rank", {64, 48, 32, 16}}, {"kv_a_layernorm", true}}),
  };
  for (const Json& json : configs) {
    SCOPED_TRACE(json.dump());
    const ModelConfig config = Parse(json);
    const std::string written = ToJson(config);
    const ModelConfig read = ParseModelConfig(written, "written");
    ExpectSame(read, config);
    EXPECT_EQ(ToJson(read), written);
  }
}

struct RefusedCase {
  Json config;
  std::string field, value, allowed;
};

TEST(ModelConfigTest, RefusesWithFileFieldValueAndWhatIsAllowed) {
  const std::vector<RefusedCase> cases = {
      {With(Mha(), {{"model_type", "bert"}}), "model_type", "\"bert\"", "\"triptych\""},
      {With(Mha(), {{"vocab_size", 0}}), "vocab_size", "0", "an integer from 1 to 16777216"},
      {With(Mha(), {{"vocab_size", 16777217}}), "vocab_size", "16777217", "1 to 16777216"},
      {With(Mha(), {{"vocab_size", "258"}}), "vocab_size", "\"258\"", "an integer"},
      {With(Mha(), {{"vocab_size", nullptr}}), "vocab_size", "null", "an integer"},
      {With(Mha(), {{"hidden_size", -1}}), "hidden_size", "-1", "1 to 1048576"},
      {With(Mha(), {{"hidden_size", 256.5}}), "hidden_size", "256.5", "an integer"},
      {With(Mha(), {{"hidden_size", 18446744073709551615u}}), "hidden_size", "18446744073709551615",
       "1 to 1048576"},
      {With(Mha(), {{"intermediate_size", 0}}), "intermediate_size", "0", "1 to 1048576"},
      {With(Mha(), {{"num_hidden_layers", 1025}}), "num_hidden_layers", "1025", "1 to 1024"},
      {With(Mha(), {{"num_attention_heads", 0}}), "num_attention_heads", "0", "1 to 1048576"},
      {With(Mha(), {{"num_attention_heads", 7}}), "num_attention_heads", "7",
       "divide hidden_size = 256 unless head_dim is given"},
      {With(Mha(), {{"max_position_embeddings", 1}}), "max_position_embeddings", "1",
       "2 to 16777216"},
      {With(Mha(), {{"head_dim", 0}}), "head_dim", "0", "1 to 1048576"},

      {With(Mha(), {{"attention", "mqa"}}), "attention", "\"mqa\"", "\"gqa\", \"mha\", \"mla\""},
      {With(Mha(), {{"attention", 3}}), "attention", "3", "\"gqa\", \"mha\", \"mla\""},
      {With(Gqa(), {{"num_key_value_heads", 3}}), "num_key_value_heads", "3",
       "divide num_attention_heads = 8"},
      {With(Gqa(), {{"num_key_value_heads", 16}}), "num_key_value_heads", "16", "1 to 8"},
      {With(Mha(), {{"num_key_value_heads", 4}}), "num_key_value_heads", "4",
       "equal num_attention_heads = 8"},
      {With(Mla(), {{"num_key_value_heads", 1}}), "num_key_value_heads", "1",
       "equal num_attention_heads = 8"},
      {With(Gqa(), {{"head_grouping", "blocked"}}), "head_grouping", "\"blocked\"",
       "\"contiguous\", \"modular\""},
      {With(Gqa(), {{"kv_lora_rank", 64}}), "kv_lora_rank", "64", "only with attention \"mla\""},
      {With(Mha(), {{"qk_rope_head_dim", 8}}), "qk_rope_head_dim", "8",
       "only with attention \"mla\""},
      {With(Mha(), {{"kv_a_layernorm", true}}), "kv_a_layernorm", "true",
       "only with attention \"mla\""},
      {With(Mla(), {{"kv_lora_rank", 0}}), "kv_lora_rank", "0", "1 to 1048576"},
      {With(Mla(), {{"kv_lora_rank", {64, 64, 64}}}), "kv_lora_rank", "[64,64,64]",
       "num_hidden_layers = 4"},
      {With(Mla(), {{"kv_lora_rank", {64, 64, 64, 0}}}), "kv_lora_rank", "0", "1 to 1048576"},
      {With(Mla(), {{"kv_a_layernorm", 1}}), "kv_a_layernorm", "1", "true, false"},
      {With(RopeMla(), {{"qk_rope_head_dim", -2}}), "qk_rope_head_dim", "-2", "0 to 1048576"},

      {With(Mha(), {{"position_embedding", "alibi"}}), "position_embedding", "\"alibi\"",
       "\"learned\", \"none\", \"rope\", \"sinusoidal\""},
      {With(Mha(), {{"position_embedding", "rope"}, {"rope_theta", 0}}), "rope_theta", "0",
       "above 0 and at most 1e+12"},
      {With(Mha(), {{"position_embedding", "rope"}, {"rope_theta", "big"}}), "rope_theta",
       "\"big\"", "a number above 0"},
      {With(Mha(), {{"position_embedding", "rope"}, {"rope_interleave", 0}}), "rope_interleave",
       "0", "true, false"},
      {With(Mha(), {{"rope_theta", 5000}}), "rope_theta", "5000",
       "only with position_embedding \"rope\""},
      {With(Mha(), {{"rope_interleave", false}}), "rope_interleave", "false",
       "only with position_embedding \"rope\""},
      {With(Mha(), {{"position_embedding", "sinusoidal"}, {"hidden_size", 255}, {"head_dim", 32}}),
       "hidden_size", "255", "even with sinusoidal positions"},
      {With(Mha(), {{"position_embedding", "rope"}, {"head_dim", 33}}), "head_dim", "33",
       "even with rotary positions"},
      {With(Mla(), {{"position_embedding", "rope"}}), "qk_rope_head_dim", "0",
       "decoupled keys of an even width"},
      {With(RopeMla(), {{"qk_rope_head_dim", 15}}), "qk_rope_head_dim", "15",
       "decoupled keys of an even width"},
      {With(Mla(), {{"qk_rope_head_dim", 16}}), "qk_rope_head_dim", "16",
       "must be 0 unless position_embedding is \"rope\""},

      {With(Mha(), {{"norm", "batch_norm"}}), "norm", "\"batch_norm\"",
       "\"layer_norm\", \"rms_norm\""},
      {With(Mha(), {{"norm_eps", -1e-5}}), "norm_eps", "-1e-05", "above 0 and at most 1"},
      {With(Mha(), {{"norm_eps", 2}}), "norm_eps", "2", "above 0 and at most 1"},
      {With(Mha(), {{"norm_bias", true}}), "norm_bias", "true", "only with norm \"layer_norm\""},
      {With(Mha(), {{"mlp", "relu"}}), "mlp", "\"relu\"", "\"gelu\", \"relu2\", \"swiglu\""},
      {With(Mha(), {{"hidden_act", "tanh"}}), "hidden_act", "\"tanh\"",
       "\"gelu\", \"gelu_exact\", \"relu2\", \"silu\""},
      {With(Mha(), {{"hidden_act", "gelu"}}), "hidden_act", "\"gelu\"", "swiglu\" allows \"silu\""},
      {With(Mha(), {{"mlp", "gelu"}, {"hidden_act", "silu"}}), "hidden_act", "\"silu\"",
       "allows \"gelu\", \"gelu_exact\""},
      {With(Mha(), {{"mlp", "gelu"}, {"hidden_act", "relu2"}}), "hidden_act", "\"relu2\"",
       "allows \"gelu\", \"gelu_exact\""},
      {With(Mha(), {{"mlp_bias", "yes"}}), "mlp_bias", "\"yes\"", "true, false"},
      {With(Mha(), {{"attention_bias", 0}}), "attention_bias", "0", "true, false"},
      {With(Mha(), {{"tie_word_embeddings", nullptr}}), "tie_word_embeddings", "null",
       "true, false"},
      {With(Mha(), {{"torch_dtype", "float16"}}), "torch_dtype", "\"float16\"",
       "\"bfloat16\", \"float32\""},
  };
  for (const RefusedCase& c : cases) {
    EXPECT_THAT(Refusal(c.config.dump()),
                AllOf(HasSubstr("dir/config.json: "), HasSubstr(c.field + " is " + c.value + "; "),
                      HasSubstr(c.allowed)));
  }
}

TEST(ModelConfigTest, NamesTheTextsThatItWasTrainedOn) {
  const std::string digits = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
  EXPECT_THAT(Parse(Mha()).training_texts, IsEmpty());
  const Json first = {{"sha256", digits}, {"held_out", 0.1}};
  const Json second = {{"sha256", std::string(64, 'f')}, {"held_out", 0}};
  const ModelConfig config = Parse(With(Mha(), {{"training_texts", {first, second}}}));
  const ModelConfig again = ParseModelConfig(ToJson(config), "again");
  for (const ModelConfig& read : {config, again}) {
    ASSERT_EQ(read.training_texts.size(), 2u);
    EXPECT_EQ(read.training_texts[0].sha256, digits);
    EXPECT_EQ(read.training_texts[0].held_out, 0.1);
    EXPECT_EQ(read.training_texts[1].sha256, std::string(64, 'f'));
    EXPECT_EQ(read.training_texts[1].held_out, 0);
  }
  std::vector<Json> refused = {Json(1),
                               first,
                               Json::array({1}),
                               Json::array({Json::object()}),
                               Json::array({{{"sha256", digits}}}),
                               Json(65, first)};
  for (const Json& sha256 : {Json(1), Json(""), Json(digits.substr(1)), Json(digits + "0"),
                             Json("A" + digits.substr(1)), Json("\n" + digits.substr(1))}) {
    refused.push_back(Json::array({With(first, {{"sha256", sha256}})}));
  }
  for (const Json& held_out : {Json("0.1"), Json(-0.1), Json(1), Json(1e300)}) {
    refused.push_back(Json::array({With(first, {{"held_out", held_out}})}));
  }
  refused.push_back(Json::array({With(first, {{"more", 1}})}));
  for (const Json& texts : refused) {
    EXPECT_THAT(Refusal(With(Mha(), {{"training_texts", texts}}).dump()),
                AllOf(HasSubstr("dir/config.json: training_texts"),
                      HasSubstr("allowed: a list of at most 64 of {\"sha256\": 64 digits")));
  }
}

TEST(ModelConfigTest, RefusesMissingFields) {
  for (const char* field : {"attention", "vocab_size", "hidden_size", "intermediate_size",
                            "num_hidden_layers", "num_attention_heads", "max_position_embeddings",
                            "position_embedding", "norm", "mlp", "torch_dtype"}) {
    Json config = Mha();
    config.erase(field);
    EXPECT_EQ(Refusal(config.dump()), std::string("dir/config.json: ") + field + " is missing");
  }
  Json mla = Mla();
  mla.erase("kv_lora_rank");
  EXPECT_EQ(Refusal(mla.dump()), "dir/config.json: kv_lora_rank is missing");
  Json gqa = Gqa();
  gqa.erase("num_key_value_heads");
  EXPECT_EQ(Refusal(gqa.dump()), "dir/config.json: num_key_value_heads is missing");
}

TEST(ModelConfigTest, RefusesUnknownFields) {
  EXPECT_THAT(Refusal(With(Mha(), {{"window_size", 4096}}).dump()),
              AllOf(HasSubstr("dir/config.json: window_size"), HasSubstr("4096")));
}

TEST(ModelConfigTest, RefusesWhatIsNotAJsonObject) {
  for (const char* text : {"", "{", "{\"a\": \"\xFF\"}"}) {
    EXPECT_THAT(Refusal(text), HasSubstr("dir/config.json: not valid JSON"));
  }
  for (const char* text : {"[]", "3", "null"}) {
    EXPECT_THAT(Refusal(text), HasSubstr("dir/config.json: must hold a JSON object"));
  }
}

TEST(ModelConfigTest, ReadsAFile) {
  const std::filesystem::path file =
      std::filesystem::path(testing::TempDir()) / "triptych_config_test.json";
  std::ofstream(file) << Gqa();
  ExpectSame(ReadModelConfig(file), Parse(Gqa()));
  std::filesystem::remove(file);
  try {
    ReadModelConfig(file);
    ADD_FAILURE() << "read a file that is not there";
  } catch (const LoadError& e) {
    EXPECT_EQ(e.what(), file.string() + ": cannot be read: No such file or directory");
  }
  const std::ofstream empty(file);
  try {
    ReadModelConfig(file);
    ADD_FAILURE() << "read an empty file";
  } catch (const LoadError& e) {
    EXPECT_THAT(e.what(), HasSubstr(file.string() + ": not valid JSON"));
  }
  std::filesystem::remove(file);
  try {
    ReadModelConfig(testing::TempDir());
    ADD_FAILURE() << "read a directory";
  } catch (const LoadError& e) {
    EXPECT_THAT(e.what(), HasSubstr("cannot be read: Is a directory"));
  }
}

// Printing such a value would recurse as deep as it is nested.
TEST(ModelConfigTest, RefusesDeepNesting) {
  const std::string deep(100'000, '[');
  const std::string json = "{\"hidden_size\": " + deep + std::string(100'000, ']') + "}";
  EXPECT_THROW(ParseModelConfig(json, "config.json"), LoadError);
}

TEST(ModelConfigTest, RefusesFieldsThatStandTwice) {
  std::string json = Mha().dump();
  json.insert(1, "\"hidden_size\": 128, ");
  EXPECT_EQ(Refusal(json), "dir/config.json: names \"hidden_size\" twice");
}

// Tables of positions are made and not loaded: two numbers would take gigabytes.
TEST(ModelConfigTest, RefusesPositionsWhoseTablesTakeTooMuch) {
  const int64_t most = int64_t{1} << 24;
  const Json many = {{"max_position_embeddings", most}};
  // Loading bounds a rotary table.
  EXPECT_EQ(Refusal(With(With(Mha(), many), {{"position_embedding", "rope"}}).dump()), "accepted");
  EXPECT_EQ(Refusal(With(RopeMla(), many).dump()), "accepted");
  EXPECT_EQ(Refusal(With(With(Mha(), many), {{"position_embedding", "sinusoidal"}}).dump()),
            "dir/config.json: max_position_embeddings is 16777216; with sinusoidal positions of "
            "width 256 allowed: an integer from 2 to 131072");
  EXPECT_EQ(Refusal(With(With(Mha(), {{"max_position_embeddings", 131072}}),
                         {{"position_embedding", "sinusoidal"}})
                        .dump()),
            "accepted");
  for (const char* positions : {"none", "learned"}) {  // no table, or the file's own
    EXPECT_EQ(Refusal(With(With(Mha(), many), {{"position_embedding", positions}}).dump()),
              "accepted");
  }
}

TEST(ModelConfigTest, ReadsNoMoreThanAMebibyte) {
  const TempDir directory;
  const std::filesystem::path file = directory.path() / "config.json";
  const auto refusal = [&] { return RefusalOf<LoadError>([&] { ReadModelConfig(file); }); };
  std::string json = Mha().dump();
  json.resize(1 << 20, ' ');
  WriteFile(file, json);
  EXPECT_EQ(refusal(), "accepted");
  WriteFile(file, json + " ");
  EXPECT_EQ(refusal(), file.string() + ": is 1048577 bytes; allowed: at most 1048576");
  std::filesystem::remove(file);
  std::filesystem::create_symlink("/dev/zero", file);
  EXPECT_THAT(refusal(), HasSubstr("Is a device"));
}

TEST(ModelConfigTest, FieldsAndValuesInMessagesAreShortAndPrintable) {
  std::string text;
  for (int i = 0; i < 10'000; ++i) text += "\x1b[2J\n\u202e";
  for (const Json& changes :
       {Json{{text, 1}}, Json{{"sliding_window", text}}, Json{{"mlp", text}},
        Json{{"model_type", text}}, Json{{"hidden_size", {text}}}, Json{{"norm_eps", text}}}) {
    const std::string refusal = Refusal(With(Mha(), changes).dump());
    EXPECT_THAT(refusal, HasSubstr("dir/config.json: "));
    EXPECT_LT(refusal.size(), 1000);
    EXPECT_EQ(refusal.find_first_of("\x1b\n"), refusal.npos);
    EXPECT_EQ(refusal.find("\u202e"), refusal.npos);
  }
}

}  // namespace
}  // namespace triptych::checkpoint::config_file_test
