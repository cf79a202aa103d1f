#include "engine/checkpoint/config/generation_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/request_limits.h"
#include "engine/base/utf8.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"

namespace triptych::checkpoint::generation_config_test {
namespace {

using testing::StartsWith;

GenerationConfig Parse(std::string_view json) {
  return ParseGenerationConfig(JsonFields(ParseJson(json, "file"), "file"));
}

std::string Refusal(std::string_view json) {
  return RefusalOf<LoadError>([&] { Parse(json); });
}

void ExpectSaysNothing(const GenerationConfig& config) {
  EXPECT_FALSE(config.temperature);
  EXPECT_FALSE(config.top_k);
  EXPECT_FALSE(config.top_p);
  EXPECT_FALSE(config.min_p);
  EXPECT_FALSE(config.repetition_penalty);
  EXPECT_FALSE(config.max_new_tokens);
  EXPECT_EQ(config.not_applied, "");
}

// As Qwen publishes it.
constexpr std::string_view kPublished = R"({
  "bos_token_id": 151643,
  "pad_token_id": 151643,
  "do_sample": true,
  "eos_token_id": [151645, 151643],
  "repetition_penalty": 1.05,
  "temperature": 0.7,
  "top_p": 0.8,
  "top_k": 20,
  "min_p": 0.01,
  "max_new_tokens": 2048,
  "transformers_version": "4.37.0"
})";

TEST(GenerationConfigTest, TakesWhatAFileSays) {
  const TempDir directory;
  WriteFile(directory.path() / "generation_config.json", kPublished);
  const GenerationConfig config = ReadGenerationConfig(directory.path());
  EXPECT_EQ(config.temperature, 0.7f);
  EXPECT_EQ(config.top_k, 20);
  EXPECT_EQ(config.top_p, 0.8f);
  EXPECT_EQ(config.min_p, 0.01f);
  EXPECT_EQ(config.repetition_penalty, 1.05f);
  EXPECT_EQ(config.max_new_tokens, 2048);
  EXPECT_EQ(config.not_applied, "");
}

TEST(GenerationConfigTest, AbsentFieldsAreNotNamed) {
  const TempDir directory;
  ExpectSaysNothing(ReadGenerationConfig(directory.path()));
  WriteFile(directory.path() / "model.gguf", "GGUF");
  ExpectSaysNothing(ReadGenerationConfig(directory.path() / "model.gguf"));
  ExpectSaysNothing(Parse("{}"));
  ExpectSaysNothing(Parse(R"({"do_sample": true, "eos_token_id": 2, "max_length": 4096})"));
  ExpectSaysNothing(Parse(
      R"({"temperature": null, "top_k": null, "do_sample": null, "typical_p": null, "x": null})"));
}

TEST(GenerationConfigTest, NotToSampleIsTemperatureZero) {
  EXPECT_EQ(Parse(R"({"do_sample": false})").temperature, 0);
  const GenerationConfig config = Parse(R"({"do_sample": false, "temperature": 0.6, "top_k": 3})");
  EXPECT_EQ(config.temperature, 0);
  EXPECT_EQ(config.top_k, 3);
  const GenerationConfig hot = Parse(R"({"do_sample": false, "temperature": 101})");
  EXPECT_EQ(hot.temperature, 0);
  EXPECT_EQ(hot.not_applied, "temperature = 101");
}

TEST(GenerationConfigTest, RangesAreThoseOfRequests) {
  EXPECT_EQ(Parse(R"({"temperature": 0})").temperature, 0);
  EXPECT_EQ(Parse(R"({"temperature": 100})").temperature, 100);
  EXPECT_EQ(Parse(R"({"top_k": 0})").top_k, 0);
  EXPECT_EQ(Parse(R"({"top_k": 2147483647})").top_k, 2147483647);
  EXPECT_EQ(Parse(R"({"top_p": 1})").top_p, 1);
  EXPECT_EQ(Parse(R"({"top_p": 1e-30})").top_p, 1e-30f);
  EXPECT_EQ(Parse(R"({"min_p": 0})").min_p, 0);
  EXPECT_EQ(Parse(R"({"min_p": 1.0})").min_p, 1);
  EXPECT_EQ(Parse(R"({"repetition_penalty": 100})").repetition_penalty, 100);
  EXPECT_EQ(Parse(R"({"max_new_tokens": 1})").max_new_tokens, 1);
}

TEST(GenerationConfigTest, TakesFormsOfOtherLibraries) {
  EXPECT_EQ(Parse(R"({"top_k": 50.0})").top_k, 50);
  EXPECT_EQ(Parse(R"({"top_k": -1})").top_k, 0);
  EXPECT_EQ(Parse(R"({"max_new_tokens": 256.0})").max_new_tokens, 256);
  for (const std::string_view zero : {R"({"top_p": 0})", R"({"top_p": 0.0, "top_k": 20})"}) {
    const GenerationConfig config = Parse(zero);  // the likeliest token
    EXPECT_EQ(config.top_k, 1);
    EXPECT_FALSE(config.top_p);
    EXPECT_EQ(config.not_applied, "");
  }
}

TEST(GenerationConfigTest, PassesOverValuesThatNoRequestCouldHave) {
  for (const std::string not_applied :
       {"temperature = 100.5", "temperature = -0.1", "temperature = 1e+39",
        "temperature = 18446744073709551615", "top_k = -2", "top_k = 2147483648", "top_k = 20.5",
        // 0 as a float, by which nothing could be chosen.
        "top_p = 1e-300", "top_p = 1.01", "min_p = 2", "repetition_penalty = 0",
        "max_new_tokens = 0", "temperature = \"0.7\"", "temperature = true", "temperature = [0.7]",
        "top_k = {\"a\":1}", "do_sample = 0", "do_sample = \"no\""}) {
    const size_t equals = not_applied.find(" = ");
    const GenerationConfig config = Parse("{\"" + not_applied.substr(0, equals) +
                                          "\": " + not_applied.substr(equals + 3) + "}");
    EXPECT_EQ(config.not_applied, not_applied);
    EXPECT_FALSE(config.temperature || config.top_k || config.top_p || config.min_p ||
                 config.repetition_penalty || config.max_new_tokens)
        << not_applied;
  }
}

TEST(GenerationConfigTest, AnInvalidConfigIsRefused) {
  for (const std::string_view json :
       {"", "[]", "3", "null", R"({"temperature": NaN})", R"({"temperature": Infinity})",
        R"({"temperature": 1e400})", R"({"top_k": 1, "top_k": 2})", "{\"a\": \"\xff\"}"}) {
    EXPECT_THAT(Refusal(json), StartsWith("file: ")) << json;
  }
  std::string deep = "{\"x\": ";
  deep.append(100'000, '[');
  EXPECT_EQ(Refusal(deep), "file: is nested too deeply; allowed: at most 16 levels");
  const TempDir directory;
  const std::filesystem::path file = directory.path() / "generation_config.json";
  WriteFile(file, "{}" + std::string(size_t{16} << 20, ' '));
  try {
    ReadGenerationConfig(directory.path());
    ADD_FAILURE() << "accepted";
  } catch (const LoadError& e) {
    EXPECT_THAT(e.what(), StartsWith(file.string() + ": "));
  }
}

TEST(GenerationConfigTest, FieldsThatWouldChangeTheTextAreNamed) {
  EXPECT_EQ(Parse(R"({"typical_p": 0.9, "num_beams": 4, "bad_words_ids": [[1]]})").not_applied,
            "bad_words_ids = [[1]], num_beams = 4, typical_p = 0.9");
  // Also for models without an encoder: they penalize the prompt's tokens.
  EXPECT_EQ(Parse(R"({"encoder_repetition_penalty": 1.5, "encoder_no_repeat_ngram_size": 3})")
                .not_applied,
            "encoder_no_repeat_ngram_size = 3, encoder_repetition_penalty = 1.5");
  // Settings without effect are not reported.
  EXPECT_EQ(Parse(R"({"typical_p": 1.0, "num_beams": 1, "length_penalty": 2, "penalty_alpha": 0.0,
                "no_repeat_ngram_size": 0, "watermarking": false, "use_cache": true,
                "encoder_repetition_penalty": 1.0, "encoder_no_repeat_ngram_size": 0,
                "suppress_tokens": [], "sequence_bias": {}})")
                .not_applied,
            "");
}

TEST(GenerationConfigTest, NamesInMessagesAreShortAndPrintable) {
  Json config;
  for (int i = 0; i < 1000; ++i) config["\x1b[2J" + std::to_string(i)] = std::string(1000, '\n');
  const std::string not_applied = Parse(config.dump()).not_applied;
  EXPECT_LT(not_applied.size(), 2000u);
  EXPECT_THAT(not_applied, StartsWith("\\x1b[2J0 = \"\\n"));
  EXPECT_THAT(not_applied, testing::EndsWith("... and 992 more"));
  EXPECT_EQ(not_applied.find('\x1b'), std::string::npos);
}

// Whatever a byte of it becomes: values that a request may have, or one line that says what is
// wrong.
TEST(GenerationConfigTest, SpoiltFilesAreClear) {
  const auto within = [](const auto& value, const auto& range) {
    return !value || range.Contains(*value);
  };
  for (size_t at = 0; at < kPublished.size(); ++at) {
    for (const char byte : {'\0', '"', '-', '9', 'e', '}', '[', '\xff'}) {
      std::string spoilt(kPublished);
      spoilt[at] = byte;
      try {
        const GenerationConfig config = Parse(spoilt);
        EXPECT_TRUE(within(config.temperature, limits::kTemperature)) << spoilt;
        EXPECT_TRUE(within(config.top_k, limits::kTopK)) << spoilt;
        EXPECT_TRUE(within(config.top_p, limits::kTopP)) << spoilt;
        EXPECT_TRUE(within(config.min_p, limits::kMinP)) << spoilt;
        EXPECT_TRUE(within(config.repetition_penalty, limits::kRepetitionPenalty)) << spoilt;
        EXPECT_TRUE(within(config.max_new_tokens, limits::kNewTokens)) << spoilt;
      } catch (const LoadError& e) {
        const std::string line = e.what();
        EXPECT_THAT(line, StartsWith("file"));
        EXPECT_EQ(line.find('\n'), std::string::npos) << line;
        EXPECT_LT(line.size(), 500u);
        EXPECT_FALSE(FindInvalidUtf8(line)) << line;
      }
    }
  }
}

}  // namespace
}  // namespace triptych::checkpoint::generation_config_test
