#include "engine/checkpoint/generation_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "engine/base/error.h"
#include "tests/support/temp_dir.h"

namespace triptych {
namespace {

using ::testing::HasSubstr;

GenerationConfig Parse(const std::string& json) { return ParseGenerationConfig(json, "g.json"); }

std::string Refusal(const std::string& json) {
  try {
    Parse(json);
  } catch (const LoadError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(GenerationConfigTest, SaysHowAModelIsSampled) {
  // As published with Qwen2.5.
  const GenerationConfig config = Parse(R"({
    "bos_token_id": 151643, "pad_token_id": 151643, "do_sample": true,
    "eos_token_id": [151645, 151643], "repetition_penalty": 1.1, "temperature": 0.7,
    "top_p": 0.8, "top_k": 20, "transformers_version": "4.37.0"})");
  EXPECT_EQ(config.do_sample, true);
  EXPECT_EQ(config.temperature, 0.7F);
  EXPECT_EQ(config.top_k, 20);
  EXPECT_EQ(config.top_p, 0.8F);
  EXPECT_EQ(config.min_p, std::nullopt);
  EXPECT_EQ(config.repetition_penalty, 1.1F);
}

TEST(GenerationConfigTest, WhatIsAbsentOrNullIsNotSaid) {
  for (const char* json : {"{}", R"({"do_sample": null, "temperature": null, "top_k": null})"}) {
    const GenerationConfig config = Parse(json);
    EXPECT_EQ(config.do_sample, std::nullopt);
    EXPECT_EQ(config.temperature, std::nullopt);
    EXPECT_EQ(config.top_k, std::nullopt);
    EXPECT_EQ(config.top_p, std::nullopt);
    EXPECT_EQ(config.repetition_penalty, std::nullopt);
  }
}

TEST(GenerationConfigTest, TheEndsOfRangesAreAllowed) {
  EXPECT_EQ(Parse(R"({"temperature": 0})").temperature, 0);
  EXPECT_EQ(Parse(R"({"temperature": 100})").temperature, 100);
  EXPECT_EQ(Parse(R"({"top_k": 0})").top_k, 0);
  EXPECT_EQ(Parse(R"({"top_k": 2147483647})").top_k, 2147483647);
  EXPECT_EQ(Parse(R"({"top_p": 1.0})").top_p, 1);
  EXPECT_EQ(Parse(R"({"min_p": 0.0})").min_p, 0);
}

TEST(GenerationConfigTest, RefusesWhatIsOutOfRange) {
  EXPECT_EQ(Refusal(R"({"temperature": -0.1})"),
            "g.json: temperature is -0.1; allowed: a number from 0 to 100");
  EXPECT_EQ(Refusal(R"({"temperature": 1e300})"),
            "g.json: temperature is 1e+300; allowed: a number from 0 to 100");
  EXPECT_EQ(Refusal(R"({"temperature": "1"})"),
            "g.json: temperature is \"1\"; allowed: a number from 0 to 100");
  EXPECT_EQ(Refusal(R"({"top_p": 0})"), "g.json: top_p is 0; allowed: a number above 0 to 1");
  EXPECT_THAT(Refusal(R"({"top_p": 1e-60})"), HasSubstr("top_p is 1e-60"));
  EXPECT_EQ(Refusal(R"({"min_p": 1.5})"), "g.json: min_p is 1.5; allowed: a number from 0 to 1");
  for (const char* top_k : {"-1", "2147483648", "1.5", "18446744073709551615", "true"}) {
    EXPECT_EQ(
        Refusal(std::string(R"({"top_k": )") + top_k + "}"),
        std::string("g.json: top_k is ") + top_k + "; allowed: an integer from 0 to 2147483647");
  }
  EXPECT_THAT(Refusal(R"({"repetition_penalty": 0})"), HasSubstr("repetition_penalty is 0"));
  EXPECT_EQ(Refusal(R"({"do_sample": 1})"), "g.json: do_sample is 1; allowed: true, false");
  EXPECT_EQ(Refusal("[]"), "g.json: must hold a JSON object");
  EXPECT_THAT(Refusal("{"), HasSubstr("g.json: not valid JSON"));
}

TEST(GenerationConfigTest, IsReadBesideTheModel) {
  const TempDir directory;
  EXPECT_EQ(ReadGenerationConfig(directory.path()).top_k, std::nullopt);
  EXPECT_EQ(ReadGenerationConfig(directory.path() / "m.gguf").top_k, std::nullopt);
  WriteFile(directory.path() / "generation_config.json", R"({"top_k": 7})");
  EXPECT_EQ(ReadGenerationConfig(directory.path()).top_k, 7);
  WriteFile(directory.path() / "generation_config.json", R"({"top_k": -7})");
  try {
    ReadGenerationConfig(directory.path());
    ADD_FAILURE() << "accepted";
  } catch (const LoadError& e) {
    EXPECT_THAT(e.what(), HasSubstr((directory.path() / "generation_config.json").string()));
  }
}

}  // namespace
}  // namespace triptych
