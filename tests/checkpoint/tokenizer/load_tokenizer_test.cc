#include "engine/checkpoint/tokenizer/load_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/gguf_model.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "tests/support/refusal.h"
#include "tests/support/shared_data.h"
#include "tests/support/small_gguf.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tokenizer_checks.h"
#include "tests/support/tokenizer_files.h"

namespace triptych::checkpoint::load_tokenizer_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Key;
using ::testing::Pair;
using ::testing::ThrowsMessage;
using ::testing::UnorderedElementsAre;

TEST(LoadTokenizerTest, WithoutFilesOfOneEveryByteIsAToken) {
  const TempDir directory;
  const std::shared_ptr<const Tokenizer> tokenizer = LoadTokenizer(directory.path());
  EXPECT_THAT(tokenizer->Encode("a\xff"), ElementsAre(97, 255));
  EXPECT_EQ(tokenizer->vocab_size(), 258);
}

std::string Refusal(const TempDir& directory) {
  return RefusalOf<LoadError>([&] { LoadTokenizer(directory.path()); });
}

TEST(LoadTokenizerTest, APublishedModelWithoutAFileOfOneIsRefused) {
  const TempDir directory;
  WriteFile(directory.path() / "config.json", R"({"model_type": "gpt2"})");
  WriteFile(directory.path() / "vocab.json", "{}");
  EXPECT_EQ(Refusal(directory), directory.path().string() +
                                    ": has no tokenizer, and its model_type is \"gpt2\"; "
                                    "supported: tokenizer.json, tokenizer.model");
  WriteFile(directory.path() / "config.json", R"({"model_type": "triptych"})");
  EXPECT_EQ(Refusal(directory), "accepted");
}

TEST(LoadTokenizerTest, TokenizerJsonComesFirst) {
  const TempDir directory;
  WriteFile(directory.path() / "tokenizer.json", SentencePieceStyleJson().dump());
  WriteFile(directory.path() / "tokenizer.model", "no model");
  WriteFile(directory.path() / "tokenizer_config.json", R"({"eos_token": {"content": "</s>"}})");
  EXPECT_EQ(LoadTokenizer(directory.path())->kind(), "BPE");
  std::filesystem::remove(directory.path() / "tokenizer.json");
  EXPECT_EQ(Refusal(directory),
            (directory.path() / "tokenizer.model").string() + ": is no SentencePiece model");
}

// A link that leads to itself is neither there nor not there.
TEST(LoadTokenizerTest, AFileThatCannotBeLookedForIsAClearLine) {
  for (const char* name : {"tokenizer.json", "tokenizer.model", "tokenizer.bin"}) {
    const TempDir directory;
    const std::filesystem::path file = directory.path() / name;
    std::filesystem::create_symlink(name, file);
    const std::string line = file.string() + ": cannot be read: Too many levels of symbolic links";
    EXPECT_EQ(Refusal(directory), line);
    try {
      TokenizerFiles(directory.path());
      ADD_FAILURE() << "accepted";
    } catch (const LoadError& e) {
      EXPECT_EQ(e.what(), line);
    }
  }
  const TempDir directory;
  WriteFile(directory.path() / "tokenizer.json", SentencePieceStyleJson().dump());
  for (const char* name : {"config.json", "generation_config.json", "tokenizer_config.json"}) {
    std::filesystem::create_symlink(name, directory.path() / name);
    EXPECT_EQ(Refusal(directory), (directory.path() / name).string() +
                                      ": cannot be read: Too many levels of symbolic links");
  }
}

TEST(LoadTokenizerTest, EndTokensAreThoseOfTheFilesBeside) {
  const TempDir directory;
  WriteFile(directory.path() / "tokenizer.json", SentencePieceStyleJson().dump());
  EXPECT_THAT(Refusal(directory), HasSubstr("no token ends texts; allowed: eos_token in"));
  WriteFile(directory.path() / "config.json", R"({"eos_token_id": 259})");
  EXPECT_THAT(LoadTokenizer(directory.path())->end_tokens(), ElementsAre(259));
  WriteFile(directory.path() / "generation_config.json", R"({"eos_token_id": [261, 2]})");
  EXPECT_THAT(LoadTokenizer(directory.path())->end_tokens(), ElementsAre(261, 2));
  WriteFile(directory.path() / "tokenizer_config.json", R"({"eos_token": "</s>"})");
  EXPECT_THAT(LoadTokenizer(directory.path())->end_tokens(), ElementsAre(2, 261));
  WriteFile(directory.path() / "tokenizer_config.json", R"({"eos_token": "<end>"})");
  EXPECT_THAT(Refusal(directory), HasSubstr("has no token \"<end>\", which is to end texts"));
  WriteFile(directory.path() / "tokenizer_config.json", R"({"eos_token": 3})");
  EXPECT_THAT(Refusal(directory), HasSubstr("eos_token is 3; allowed: a text"));
  WriteFile(directory.path() / "tokenizer_config.json", "{}");
  WriteFile(directory.path() / "generation_config.json", R"({"eos_token_id": 99999})");
  EXPECT_THAT(Refusal(directory), HasSubstr("has no token 99999, which is to end texts"));
}

TEST(LoadTokenizerTest, WhatIsMadeOfACheckpointGeneratesAsItDid) {
  const TempDir directory;
  const auto made = [&] { return TokenizerFiles(directory.path()); };
  WriteFile(directory.path() / "config.json", R"({"eos_token_id": 7})");
  EXPECT_EQ(made().at("generation_config.json"), "{\"eos_token_id\":[7]}\n");
  // Its own end tokens go before those of config.json, and stay as they are written.
  const std::string own = R"({"temperature": 0.7,  "eos_token_id": 8})";
  WriteFile(directory.path() / "generation_config.json", own);
  EXPECT_EQ(made().at("generation_config.json"), own);
  WriteFile(directory.path() / "generation_config.json", R"({"temperature": 0.7})");
  EXPECT_EQ(Json::parse(made().at("generation_config.json")),
            Json({{"temperature", 0.7}, {"eos_token_id", {7}}}));
  WriteFile(directory.path() / "config.json", "{}");
  EXPECT_EQ(made().at("generation_config.json"), R"({"temperature": 0.7})");
}

// llama2.c's file of a model of 512 tokens. Another implementation made the expected text.
TEST(LoadTokenizerTest, Llama2c) {
  const std::filesystem::path data = SharedData() / "stories260K";
  if (!std::filesystem::exists(data)) GTEST_SKIP() << "no " << data;
  const std::string bytes = ReadFile(data / "tok512.bin");
  const TempDir directory;
  WriteFile(directory.path() / "tokenizer.bin", bytes);
  const std::shared_ptr<const Tokenizer> tokenizer = LoadTokenizer(directory.path());
  EXPECT_EQ(tokenizer->vocab_size(), 512);
  EXPECT_EQ(tokenizer->begin_token(), 1);
  EXPECT_THAT(tokenizer->end_tokens(), ElementsAre(2));
  // Those 256 tokens were generated, except for the newline at the end.
  const std::string text = ReadFile(data / "expected_greedy_256.txt");
  const std::vector<int32_t> tokens = tokenizer->Encode(text.substr(0, text.size() - 1));
  EXPECT_EQ(tokenizer->Decode(tokens), text.substr(0, text.size() - 1));
  EXPECT_NEAR(static_cast<double>(tokens.size()), 256, 8);
  for (const std::string other : {" a", "é 👩‍👧", "\n\n", "<s>"}) {
    EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(other)), other);
  }
  ExpectStreamsAreWholeTexts(*tokenizer);
  for (size_t length = 0; length < bytes.size(); length += 11) {
    WriteFile(directory.path() / "tokenizer.bin", std::string_view(bytes).substr(0, length));
    if (Refusal(directory) != "accepted") continue;
    EXPECT_LT(LoadTokenizer(directory.path())->vocab_size(), 512);
  }
}

TEST(LoadTokenizerTest, AGgufFileHasFilesForOtherCheckpoints) {
  const TempDir directory;
  const std::filesystem::path gguf = directory.path() / "m.gguf";
  WriteFile(gguf, SmallGguf());
  const std::map<std::string, std::string> files = TokenizerFiles(gguf);
  EXPECT_THAT(files, UnorderedElementsAre(Key("tokenizer.model"), Key("tokenizer_config.json"),
                                          Key("generation_config.json"),
                                          Pair("chat_template.jinja", "{{ messages }}")));
  const TempDir other;
  for (const auto& [name, text] : files) WriteFile(other.path() / name, text);
  EXPECT_EQ(LoadTokenizer(other.path())->Encode("ab a\n"), LoadTokenizer(gguf)->Encode("ab a\n"));
  EXPECT_EQ(TokenizerFiles(other.path()), files);
}

// A template that the server would refuse is not written either.
TEST(LoadTokenizerTest, AChatTemplateHasABound) {
  const TempDir directory;
  OpenedCheckpoint gguf;
  gguf.path = directory.path() / "m.gguf";
  for (const bool fits : {true, false}) {
    const std::string text(kMaxTemplateBytes + (fits ? 0 : 1), 'x');
    WriteFile(gguf.path, SmallGguf(text));
    gguf.gguf = std::make_shared<const GgufFile>(gguf.path);
    WriteFile(directory.path() / "chat_template.jinja", text);
    OpenedCheckpoint files;
    files.path = directory.path();
    if (fits) {
      EXPECT_EQ(TokenizerFiles(gguf.path).at("chat_template.jinja"), text);
      EXPECT_EQ(TokenizerFiles(files.path).at("chat_template.jinja"), text);
      EXPECT_EQ(ReadChatTemplate(gguf).text, text);
      EXPECT_EQ(ReadChatTemplate(files).text, text);
      continue;
    }
    const std::string line =
        gguf.path.string() + ": tokenizer.chat_template is 1048577 bytes; allowed: at most 1048576";
    EXPECT_THAT([&] { TokenizerFiles(gguf.path); }, ThrowsMessage<LoadError>(line));
    EXPECT_THAT([&] { ReadChatTemplate(gguf); }, ThrowsMessage<LoadError>(line));
    EXPECT_THROW(TokenizerFiles(files.path), LoadError);
    EXPECT_THROW(ReadChatTemplate(files), LoadError);
  }
}

TEST(LoadTokenizerTest, ADirectorysChatTemplateIsAFileOfItsOwnOrOfTheTokenizer) {
  const TempDir directory;
  OpenedCheckpoint checkpoint;
  checkpoint.path = directory.path();
  const auto config = directory.path() / "tokenizer_config.json";
  EXPECT_EQ(ReadChatTemplate(checkpoint).text, std::nullopt);
  WriteFile(config, R"({"bos_token": "<s>"})");
  EXPECT_EQ(ReadChatTemplate(checkpoint).text, std::nullopt);
  EXPECT_EQ(ReadChatTemplate(checkpoint).special_tokens.at("bos_token"), "<s>");
  std::filesystem::create_directory(directory.path() / "additional_chat_templates");
  WriteFile(directory.path() / "additional_chat_templates/default.jinja", "c");
  EXPECT_EQ(ReadChatTemplate(checkpoint).text, "c");
  WriteFile(config, R"({"chat_template": [{"name": "tool_use", "template": "t"},
                                          {"name": "default", "template": "a"}]})");
  EXPECT_EQ(ReadChatTemplate(checkpoint).text, "a");
  WriteFile(config, R"({"chat_template": "b"})");
  EXPECT_EQ(ReadChatTemplate(checkpoint).text, "b");
  WriteFile(directory.path() / "chat_template.jinja", "d");
  EXPECT_EQ(ReadChatTemplate(checkpoint).text, "d");
  std::filesystem::remove(directory.path() / "chat_template.jinja");
  WriteFile(config, "{");
  EXPECT_THAT([&] { ReadChatTemplate(checkpoint); },
              ThrowsMessage<LoadError>(HasSubstr("tokenizer_config.json: not valid JSON")));
}

// A file that is put at the path later is another file.
TEST(LoadTokenizerTest, OfAnOpenedGgufFileNothingIsOpenedAgain) {
  const TempDir directory;
  const std::filesystem::path gguf = directory.path() / "m.gguf";
  WriteFile(gguf, SmallGguf());
  const OpenedCheckpoint opened = OpenCheckpoint(gguf);
  std::filesystem::remove(gguf);
  EXPECT_EQ(LoadTokenizer(opened)->vocab_size(), kSmallGgufVocabulary);
}

TEST(LoadTokenizerTest, AModelHasEveryTokenOfItsTokenizer) {
  const TempDir directory;
  const std::shared_ptr<const Tokenizer> tokenizer = LoadTokenizer(directory.path());
  ModelConfig config;
  config.vocab_size = 258;
  CheckVocabulary(*tokenizer, config, "model");
  config.vocab_size = 257;
  try {
    CheckVocabulary(*tokenizer, config, "model");
    ADD_FAILURE() << "accepted";
  } catch (const LoadError& e) {
    EXPECT_STREQ(e.what(), "model: vocab_size is 257; its tokenizer needs at least 258");
  }
}

}  // namespace
}  // namespace triptych::checkpoint::load_tokenizer_test
