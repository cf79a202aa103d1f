#include "engine/checkpoint/tokenizer/load_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/gguf_model.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/checkpoint/tokenizer/scored_pieces.h"
#include "engine/checkpoint/tokenizer/sentencepiece_model.h"
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

TEST(LoadTokenizerTest, EndTokensAreThoseOfTheFilesNextToIt) {
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
}

// As in transformers and vLLM, which load such files.
TEST(LoadTokenizerTest, EndTokensThatAreNoneArePassedOver) {
  const TempDir directory;
  WriteFile(directory.path() / "tokenizer.json", SentencePieceStyleJson().dump());
  WriteFile(directory.path() / "config.json", R"({"eos_token_id": 2})");
  const auto ends_with = [&](const std::string& generation) {
    WriteFile(directory.path() / "generation_config.json", generation);
    TokenizerNotes notes;
    const auto tokenizer = LoadTokenizer(directory.path(), &notes);
    const auto ends = tokenizer->end_tokens();
    return std::pair(std::vector(ends.begin(), ends.end()), notes);
  };
  const auto [some, notes] = ends_with(R"({"eos_token_id": [261, null, -1, 99999, 2.0]})");
  EXPECT_THAT(some, ElementsAre(261, 2));
  EXPECT_THAT(notes.ends, ElementsAre(Pair(2, "eos_token_id of generation_config.json"),
                                      Pair(261, "eos_token_id of generation_config.json")));
  EXPECT_THAT(
      notes.warnings,
      ElementsAre("generation_config.json: eos_token_id null is no token, and is passed over",
                  "generation_config.json: eos_token_id -1 is no token, and is passed over",
                  "generation_config.json: eos_token_id 99999 is no token of the tokenizer, and is "
                  "passed over"));
  // The file then names none, and the model's config counts.
  for (const char* none : {"-1", "null", "[null]", "[]", "18446744073709551615"}) {
    EXPECT_THAT(ends_with("{\"eos_token_id\": " + std::string(none) + "}").first, ElementsAre(2));
  }
  for (const char* wrong : {"\"</s>\"", "[true]", "2.5", "{}"}) {
    WriteFile(directory.path() / "generation_config.json",
              "{\"eos_token_id\": " + std::string(wrong) + "}");
    EXPECT_THAT(Refusal(directory), HasSubstr("allowed: token ids, null")) << wrong;
  }
}

// transformers 4: some classes put the begin token before texts by themselves.
TEST(LoadTokenizerTest, TheClassDecidesWhetherTextsBeginWithAToken) {
  const TempDir directory;
  const Json with = SentencePieceStyleJson();  // its post-processor puts "<s>" first
  Json without = with;
  without["post_processor"] = {{"type", "ByteLevel"}};
  const auto begin = [&](const Json& tokenizer, const Json& settings) {
    WriteFile(directory.path() / "tokenizer.json", tokenizer.dump());
    Json all = settings;
    all["eos_token"] = "</s>";
    WriteFile(directory.path() / "tokenizer_config.json", all.dump());
    return LoadTokenizer(directory.path())->begin_token();
  };
  for (const char* name : {"LlamaTokenizerFast", "LlamaTokenizer", "CodeLlamaTokenizerFast",
                           "GPTNeoXTokenizerFast", "GemmaTokenizer", "CohereTokenizerFast"}) {
    Json settings = {{"tokenizer_class", name}, {"bos_token", "<s>"}, {"add_bos_token", true}};
    EXPECT_EQ(begin(without, settings), 1) << name;
    for (const Json& no : {Json(false), Json()}) {
      settings["add_bos_token"] = no;
      EXPECT_EQ(begin(with, settings), std::nullopt) << name;
    }
  }
  // The defaults of the classes.
  EXPECT_EQ(begin(without, {{"tokenizer_class", "LlamaTokenizerFast"}}), 1);
  EXPECT_EQ(begin(with, {{"tokenizer_class", "GPTNeoXTokenizerFast"}, {"bos_token", "<s>"}}),
            std::nullopt);
  // For other classes the file alone counts.
  for (const char* name : {"PreTrainedTokenizerFast", "Qwen2TokenizerFast", "GPT2Tokenizer"}) {
    EXPECT_EQ(begin(without, {{"tokenizer_class", name}, {"add_bos_token", true}}), std::nullopt);
    EXPECT_EQ(begin(with, {{"tokenizer_class", name}, {"add_bos_token", false}}), 1);
  }
  EXPECT_EQ(begin(with, {{"add_bos_token", false}}), 1);
  // A begin token that is none is passed over.
  TokenizerNotes notes;
  begin(with, {{"tokenizer_class", "GemmaTokenizer"}});
  EXPECT_EQ(LoadTokenizer(directory.path(), &notes)->begin_token(), 1);
  EXPECT_THAT(notes.warnings, ElementsAre(HasSubstr("bos_token \"<bos>\" is no token")));
}

// Tokens after those of tokenizer.model, as slow tokenizers are saved.
class AddedTokensTest : public ::testing::Test {
 protected:
  AddedTokensTest() {
    ScoredVocabulary vocabulary{.pieces = {{"<unk>", 0, ScoredPiece::kUnknown},
                                           {"<s>", 0, ScoredPiece::kControl},
                                           {"</s>", 0, ScoredPiece::kControl}},
                                .space = kMetaspace,
                                .begin = 1,
                                .ends = {2}};
    for (const char* text : {"▁", "a", "b", "▁a"}) vocabulary.pieces.push_back({text, -1.0F});
    WriteFile(directory_.path() / "tokenizer.model", WriteSentencePieceModel(vocabulary));
  }

  void Write(const std::string& name, const Json& json) {
    WriteFile(directory_.path() / name, json.dump());
  }
  std::shared_ptr<const Tokenizer> Load() {
    notes_ = {};
    return LoadTokenizer(directory_.path(), &notes_);
  }
  std::string Why() {
    return RefusalOf<LoadError>([&] { Load(); });
  }

  TempDir directory_;
  TokenizerNotes notes_;
};

TEST_F(AddedTokensTest, AreTokensOfTheFile) {
  Write("added_tokens.json", {{"<|im_end|>", 7}, {"<tool>", 9}});
  Write("tokenizer_config.json", {{"eos_token", "<|im_end|>"}});
  auto tokenizer = Load();
  EXPECT_EQ(tokenizer->vocab_size(), 10);
  EXPECT_THAT(tokenizer->end_tokens(), ElementsAre(7, 2));
  EXPECT_THAT(notes_.ends, ElementsAre(Pair(2, "tokenizer.model"),
                                       Pair(7, "eos_token of tokenizer_config.json")));
  // A special token is no text; the other one is found in every text.
  EXPECT_THAT(tokenizer->Encode("a<tool>b<|im_end|>", SpecialTokens::kParsed),
              ElementsAre(6, 9, 3, 5, 7));
  EXPECT_EQ(tokenizer->Encode("<tool>"), std::vector<int32_t>{9});
  for (const int32_t token : tokenizer->Encode("<|im_end|>")) EXPECT_NE(token, 7);
  EXPECT_EQ(tokenizer->Decode(7), "");
  EXPECT_EQ(tokenizer->Decode(9), "<tool>");
  ExpectStreamsAreWholeTexts(*tokenizer);

  // added_tokens_decoder goes before, and has flags.
  Write("tokenizer_config.json",
        {{"added_tokens_decoder",
          {{"2", {{"content", "</s>"}, {"special", true}}},
           {"7", {{"content", "<x>"}, {"special", true}}},
           {"8", {{"content", "<y>"}, {"lstrip", true}, {"rstrip", true}}}}}});
  tokenizer = Load();
  EXPECT_THAT(tokenizer->end_tokens(), ElementsAre(2));
  EXPECT_THAT(tokenizer->Encode("a <y> b<x>", SpecialTokens::kParsed), ElementsAre(6, 8, 3, 5, 7));
  EXPECT_EQ(tokenizer->vocab_size(), 9);
  EXPECT_THAT(notes_.warnings, testing::IsEmpty());
}

TEST_F(AddedTokensTest, SpecialOnesAreThoseThatOtherFilesName) {
  Write("added_tokens.json", {{"<x>", 7}, {"<y>", 8}, {"<z>", 9}, {"<end_of_turn>", 10}});
  Write("special_tokens_map.json", {{"bos_token", {{"content", "<x>"}}},
                                    {"eos_token", "<z>"},
                                    {"additional_special_tokens", {"<y>"}}});
  const auto tokenizer = Load();
  EXPECT_EQ(tokenizer->begin_token(), 7);
  EXPECT_THAT(tokenizer->end_tokens(), ElementsAre(9, 2));
  for (const int32_t token : {7, 8, 9, 10}) EXPECT_EQ(tokenizer->Decode(token), "") << token;
}

TEST_F(AddedTokensTest, TextsBeginAsTheSettingsSay) {
  Write("tokenizer_config.json", {{"add_prefix_space", false}, {"add_bos_token", false}});
  auto tokenizer = Load();
  EXPECT_EQ(tokenizer->begin_token(), std::nullopt);
  EXPECT_THAT(tokenizer->Encode("a"), ElementsAre(4));
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(" a")), " a");
  Write("tokenizer_config.json", {{"bos_token", "</s>"}});
  tokenizer = Load();
  EXPECT_EQ(tokenizer->begin_token(), 2);
  EXPECT_THAT(tokenizer->Encode("a"), ElementsAre(6));
}

TEST_F(AddedTokensTest, AnInvalidTokenIsNamed) {
  Write("tokenizer_config.json", {{"eos_token", "<end>"}});
  EXPECT_THAT(Why(), HasSubstr("tokenizer.model: has no token \"<end>\", which is to end texts"));
  Write("tokenizer_config.json", {{"bos_token", "<begin>"}});
  EXPECT_EQ(Load()->begin_token(), 1);
  EXPECT_THAT(notes_.warnings, ElementsAre(HasSubstr("bos_token \"<begin>\" is no token")));
  Write("tokenizer_config.json", Json::object());
  Write("added_tokens.json", {{"<x>", 4}});
  Load();
  EXPECT_THAT(notes_.warnings, ElementsAre(HasSubstr("\"<x>\" has the id 4 of a piece")));
  Write("added_tokens.json", {{"<x>", 1'000'000}});
  EXPECT_THAT(Why(), HasSubstr("token 1000000 is \"<x>\"; allowed for added tokens: ids from 7"));
  Write("added_tokens.json", {{"a", 7}});
  EXPECT_THAT(Why(), HasSubstr("token 7 is \"a\", which another one is too"));
  Write("added_tokens.json", {{"<x>", 7}, {"<y>", 7}});
  EXPECT_THAT(Why(), HasSubstr("another token has that id too"));
  Write("added_tokens.json", {{"<x>", "7"}});
  EXPECT_THAT(Why(), HasSubstr("<x> is \"7\"; allowed: an integer"));
  Write("added_tokens.json", {{std::string(300, 'x'), 7}});
  EXPECT_THAT(Why(), HasSubstr("allowed: UTF-8 of 1 to 256 bytes"));
}

TEST(LoadTokenizerTest, AConvertedCheckpointGeneratesAsItsSource) {
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
TEST(LoadTokenizerTest, AnOpenGgufFileIsNotOpenedAgain) {
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
  // A token that neither begins nor ends texts may be missing.
  WriteFile(directory.path() / "tokenizer.json", SentencePieceStyleJson().dump());
  WriteFile(directory.path() / "config.json", R"({"eos_token_id": 2})");
  ModelConfig small;
  small.vocab_size = 3;
  CheckVocabulary(*LoadTokenizer(directory.path()), small, "model");
  config.vocab_size = 257;
  try {
    CheckVocabulary(*tokenizer, config, "model");
    ADD_FAILURE() << "accepted";
  } catch (const LoadError& e) {
    EXPECT_STREQ(e.what(),
                 "model: vocab_size is 257; its tokenizer needs at least 258, as token 257 "
                 "ends texts");
  }
}

}  // namespace
}  // namespace triptych::checkpoint::load_tokenizer_test
