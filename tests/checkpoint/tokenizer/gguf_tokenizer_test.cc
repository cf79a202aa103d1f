#include "engine/checkpoint/tokenizer/gguf_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/checkpoint/tokenizer/llama2c_tokenizer.h"
#include "engine/checkpoint/tokenizer/load_tokenizer.h"
#include "engine/checkpoint/tokenizer/tokenizer_json.h"
#include "tests/support/gguf_file.h"
#include "tests/support/refusal.h"
#include "tests/support/shared_data.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tokenizer_checks.h"
#include "tests/support/tokenizer_files.h"

namespace triptych::checkpoint::gguf_tokenizer_test {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

enum TokenType { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

const std::string kKey = "tokenizer.ggml.";

std::shared_ptr<const Tokenizer> Parse(const Json& metadata) {
  return ParseGgufTokenizer(metadata, "m.gguf");
}

std::string Refusal(const Json& metadata) {
  return RefusalOf<LoadError>([&] { Parse(metadata); });
}

// Metadata that converters write for Llama 2's form: SentencePieceStyleJson's tokens, "X" and
// "<user> " that stand for their texts, and one that nothing is made of.
Json Scored() {
  const Json json = SentencePieceStyleJson();
  const Json& vocab = json["model"]["vocab"];
  Json tokens = Json::array(), types = Json::array(), scores = Json::array();
  for (size_t i = 0; i < vocab.size(); ++i) {
    tokens.push_back("");
    types.push_back(int{kNormal});
    scores.push_back(0.0);
  }
  for (const auto& [text, id] : vocab.items()) tokens[id.get<size_t>()] = text;
  types[0] = int{kUnknown};
  types[1] = types[2] = int{kControl};
  for (int byte = 0; byte < 256; ++byte) types[3 + byte] = int{kByte};
  // The pieces in the order of the merges: "ab", then " ab".
  scores[vocab["ab"].get<size_t>()] = -1.0;
  scores[vocab["▁ab"].get<size_t>()] = -2.0;
  for (const char* single : {"▁", "a", "b"}) scores[vocab[single].get<size_t>()] = -3.0;
  const auto add = [&](const char* text, TokenType type) {
    tokens.push_back(text);
    types.push_back(int{type});
    scores.push_back(-1000.0);
  };
  add("<user> ", kUserDefined);
  add("[PAD265]", kUnused);
  return {{"general.architecture", "llama"},
          {kKey + "model", "llama"},
          {kKey + "pre", "default"},
          {kKey + "tokens", tokens},
          {kKey + "scores", scores},
          {kKey + "token_type", types},
          {kKey + "bos_token_id", 1},
          {kKey + "eos_token_id", 2},
          {kKey + "unknown_token_id", 0},
          {kKey + "padding_token_id", 0},
          {kKey + "add_bos_token", true},
          {kKey + "add_eos_token", false},
          {"tokenizer.chat_template", "{{ x }}"}};
}

const std::vector<std::string> kWords = {"ab", " ab", "1234", "12", "don", "'t", "\n\n", "é"};

// The metadata of ByteLevelJson with words, whose last token is "</s>".
Json ByteLevel(const std::string& pre) {
  const Json json = ByteLevelJson(kWords);
  const Json& vocab = json["model"]["vocab"];
  Json tokens = Json::array(), types = Json::array();
  for (size_t i = 0; i < vocab.size(); ++i) {
    tokens.push_back("");
    types.push_back(int{kNormal});
  }
  for (const auto& [text, id] : vocab.items()) tokens[id.get<size_t>()] = text;
  tokens.push_back("</s>");
  types.push_back(int{kControl});
  return {{kKey + "model", "gpt2"},
          {kKey + "pre", pre},
          {kKey + "tokens", tokens},
          {kKey + "token_type", types},
          {kKey + "merges", json["model"]["merges"]},
          {kKey + "bos_token_id", tokens.size() - 1},
          {kKey + "eos_token_id", tokens.size() - 1}};
}

const std::vector<std::string> kTexts = {
    "",      "a",         " a",     "ab ab",       "  ab\n\nab",
    "12345", "don't",     "DON'T",  "é e\xcc\x81", "👩‍👧 ab",
    "▁ab",   "<s>ab</s>", "a\xff b"};

TEST(GgufTokenizerTest, ScoresMergeAsPublished) {
  const std::shared_ptr<const Tokenizer> tokenizer = Parse(Scored());
  const std::shared_ptr<const Tokenizer> published =
      ParseTokenizerJson(SentencePieceStyleJson().dump(), "tokenizer.json", {.end_text = "</s>"});
  for (const std::string& text : kTexts) {
    const std::vector<int32_t> tokens = published->Encode(text);
    EXPECT_EQ(tokenizer->Encode(text), tokens) << text;
    EXPECT_EQ(tokenizer->Decode(tokens), published->Decode(tokens)) << text;
    EXPECT_EQ(tokenizer->Encode(text, SpecialTokens::kParsed),
              published->Encode(text, SpecialTokens::kParsed))
        << text;
  }
  EXPECT_EQ(tokenizer->begin_token(), 1);
  EXPECT_THAT(tokenizer->end_tokens(), ElementsAre(2));
  EXPECT_EQ(tokenizer->kind(), "BPE");
  EXPECT_TRUE(tokenizer->drops_leading_space());
  EXPECT_EQ(tokenizer->vocab_size(), 266);
  EXPECT_EQ(tokenizer->special_tokens().size(), 3u);
  // A text of the user's is one wherever it stands, and what is unused is nothing.
  EXPECT_THAT(tokenizer->Encode("<user> ab"), ElementsAre(264, 263));
  EXPECT_EQ(tokenizer->Decode(264), "<user> ");
  EXPECT_EQ(tokenizer->Decode(265), "");
  for (const int32_t token : tokenizer->Encode("[PAD265]")) EXPECT_NE(token, 265);
}

TEST(GgufTokenizerTest, TheSpaceBeforeATextIsAsTheFileSays) {
  Json metadata = Scored();
  metadata[kKey + "add_space_prefix"] = false;
  metadata[kKey + "add_bos_token"] = false;
  const std::shared_ptr<const Tokenizer> tokenizer = Parse(metadata);
  EXPECT_THAT(tokenizer->Encode("ab"), ElementsAre(262));
  EXPECT_FALSE(tokenizer->drops_leading_space());
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(" ab")), " ab");
  EXPECT_EQ(tokenizer->begin_token(), std::nullopt);
}

// llama2.c's tokenizer of a real model as a converter writes it.
TEST(GgufTokenizerTest, ARealVocabulary) {
  const std::filesystem::path file = SharedData() / "stories260K" / "tok512.bin";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << "no " << file;
  const std::string bytes = ReadFile(file);
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<int32_t> types;
  for (size_t at = 4; at < bytes.size();) {
    float score = 0;
    int32_t length = 0;
    std::memcpy(&score, &bytes[at], 4);
    std::memcpy(&length, &bytes[at + 4], 4);
    std::string text;
    for (const char c : bytes.substr(at + 8, length)) text += c == ' ' ? "▁" : std::string(1, c);
    const auto token = static_cast<int>(tokens.size());
    if (token == 1) text = "<s>";
    if (token == 2) text = "</s>";
    types.push_back(token == 0 ? kUnknown : token < 3 ? kControl : token < 259 ? kByte : kNormal);
    tokens.push_back(text);
    scores.push_back(score);
    at += 8 + length;
  }
  const TempDir directory;
  WriteFile(directory.path() / "m.gguf", GgufBuilder()
                                             .Add(kKey + "model", "llama")
                                             .Add(kKey + "tokens", tokens)
                                             .Add(kKey + "scores", scores)
                                             .Add(kKey + "token_type", types)
                                             .Add(kKey + "bos_token_id", uint32_t{1})
                                             .Add(kKey + "eos_token_id", uint32_t{2})
                                             .Bytes());
  const std::shared_ptr<const Tokenizer> tokenizer = LoadTokenizer(directory.path() / "m.gguf");
  const std::shared_ptr<const Tokenizer> llama2c = ParseLlama2cTokenizer(bytes, "tok512.bin");
  const std::string story = ReadFile(file.parent_path() / "expected_greedy_256.txt");
  EXPECT_EQ(tokenizer->Encode(story), llama2c->Encode(story));
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(story)), story);
  EXPECT_GT(tokenizer->Encode(story).size(), 200u);
}

TEST(GgufTokenizerTest, ByteLevelIsAsPublished) {
  const std::shared_ptr<const Tokenizer> tokenizer = Parse(ByteLevel("gpt-2"));
  const std::shared_ptr<const Tokenizer> published =
      ParseTokenizerJson(ByteLevelJson(kWords).dump(), "tokenizer.json", {.end_text = "</s>"});
  for (const std::string& text : kTexts) {
    EXPECT_EQ(tokenizer->Encode(text), published->Encode(text)) << text;
    EXPECT_EQ(tokenizer->Encode(text, SpecialTokens::kParsed),
              published->Encode(text, SpecialTokens::kParsed))
        << text;
  }
  EXPECT_EQ(tokenizer->kind(), "byte-level BPE");
  EXPECT_EQ(tokenizer->begin_token(), std::nullopt);
  EXPECT_EQ(tokenizer->end_token(), published->end_token());
  EXPECT_EQ(tokenizer->vocab_size(), published->vocab_size());
}

// Converters write one end token, or three, where the same model's generation_config.json has more.
TEST(GgufTokenizerTest, TokensWithTheTextsOfTurnEndsEndTexts) {
  for (const bool scored : {true, false}) {
    Json metadata = scored ? Scored() : ByteLevel("qwen2");
    const auto add = [&](const char* text, TokenType type) {
      metadata[kKey + "tokens"].push_back(text);
      metadata[kKey + "token_type"].push_back(int{type});
      if (scored) metadata[kKey + "scores"].push_back(-1000.0);
      return static_cast<int32_t>(metadata[kKey + "tokens"].size() - 1);
    };
    const int32_t control = add("<|im_end|>", kControl);
    const int32_t user = add("<end_of_turn>", kUserDefined);
    const int32_t normal = add("<|eot_id|>", kNormal);
    add("<|endoftext|>", kUnused);
    TokenizerNotes notes;
    const auto tokenizer = ParseGgufTokenizer(metadata, "m.gguf", &notes);
    const int32_t own = metadata[kKey + "eos_token_id"];
    EXPECT_THAT(tokenizer->end_tokens(), ElementsAre(own, control, user, normal));
    EXPECT_EQ(notes.ends.at(own), "tokenizer.ggml.eos_token_id");
    EXPECT_EQ(notes.ends.at(user), "its text");
    // Special, whatever their type: never text of an answer, and never made of a text.
    for (const auto& [token, text] :
         {std::pair{control, "<|im_end|>"}, {user, "<end_of_turn>"}, {normal, "<|eot_id|>"}}) {
      EXPECT_EQ(tokenizer->Decode(token), "");
      EXPECT_THAT(tokenizer->Encode(text, SpecialTokens::kParsed), ElementsAre(token));
      EXPECT_THAT(tokenizer->Encode(text), testing::Not(testing::Contains(token)));
    }
  }
}

TEST(GgufTokenizerTest, EndTokensThatAreNoneArePassedOver) {
  Json metadata = Scored();
  metadata[kKey + "eot_token_id"] = 4294967295;
  TokenizerNotes notes;
  EXPECT_THAT(ParseGgufTokenizer(metadata, "m.gguf", &notes)->end_tokens(), ElementsAre(2));
  EXPECT_THAT(notes.warnings, ElementsAre("tokenizer.ggml.eot_token_id 4294967295 is no token, and "
                                          "is passed over"));
  // The token of that text ends texts without the key, too.
  metadata.erase(kKey + "eos_token_id");
  EXPECT_THAT(Parse(metadata)->end_tokens(), ElementsAre(2));
  metadata[kKey + "tokens"][2] = "<2>";
  EXPECT_EQ(Refusal(metadata), "m.gguf: tokenizer.ggml.eos_token_id is missing");
}

TEST(GgufTokenizerTest, OtherNamesOfTheSamePreTokenizers) {
  for (const auto& [name, same] : {std::pair{"llama3", "llama-bpe"},
                                   {"llama-v3", "llama-bpe"},
                                   {"deepseek-r1-qwen", "qwen2"},
                                   {"megrez", "qwen2"}}) {
    const auto tokenizer = Parse(ByteLevel(name)), other = Parse(ByteLevel(same));
    for (const std::string& text : kTexts) {
      EXPECT_EQ(tokenizer->Encode(text), other->Encode(text)) << name << " " << text;
    }
  }
  EXPECT_EQ(Parse(ByteLevel("llama3"))->begin_token(),
            Parse(ByteLevel("llama-bpe"))->begin_token());
  EXPECT_TRUE(Parse(ByteLevel("deepseek-r1-qwen"))->begin_token());
  // Which one it was is not known.
  EXPECT_THAT(Refusal(ByteLevel("default")), HasSubstr("\"default\"; supported: \"gpt-2\""));
}

// The tokenizer.json of models whose GGUF files have the pre-tokenizer `pre`: its published steps.
Json Published(const std::string& pre) {
  Json steps = Json::array();
  const auto split = [&](const char* pattern) {
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", pattern}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  };
  Json json = ByteLevelJson(kWords);
  if (pre == "olmo") {
    json["normalizer"] = {{"type", "NFC"}};
  } else {
    split("[\r\n]");
    if (pre == "deepseek-llm") {
      // The letters of the test's texts.
      split("\\s?[A-Za-zÀ-ÖØ-öø-ƺͰ-ͳΣ-ϵϷ-ҁＡ-Ｚ]+");
      split("\\s?[!-/:-~！-／：-～‘-‟　-。]+");
      split("\\s+$");
    } else {
      split("\\s?\\p{L}+");
      split("\\s?\\p{P}+");
    }
    split("[一-龥ࠀ-一가-퟿]+");
    steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  }
  steps.push_back(
      {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", pre == "olmo"}});
  json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
  return json;
}

TEST(GgufTokenizerTest, CutsAsTheTokenizerJsonOfTheSameModels) {
  std::vector<std::string> texts = kTexts;
  for (const char* text : {"ab, don't 1234x", "Σλ \t ab  \r\n\n 12", "中文。かな 한글12",
                           "x=  a[12]+'t", "Привет ёж！ab"}) {
    texts.emplace_back(text);
  }
  for (const char* pre : {"olmo", "deepseek-llm", "deepseek-coder"}) {
    Json metadata = ByteLevel(pre);
    metadata[kKey + "add_bos_token"] = false;
    const auto tokenizer = Parse(metadata);
    const auto published =
        ParseTokenizerJson(Published(pre).dump(), "tokenizer.json", {.end_text = "</s>"});
    for (const std::string& text : texts) {
      EXPECT_EQ(tokenizer->Encode(text), published->Encode(text)) << pre << " " << text;
    }
  }
}

TEST(GgufTokenizerTest, StreamedPiecesAreTheWholeTextAndMegabytesComeBack) {
  Json bare = Scored();
  bare[kKey + "add_space_prefix"] = false;
  for (const Json& metadata :
       {Scored(), bare, ByteLevel("gpt-2"), ByteLevel("llama-bpe"), ByteLevel("qwen2"),
        ByteLevel("smollm"), ByteLevel("tekken"), ByteLevel("deepseek-llm"),
        ByteLevel("deepseek-coder"), ByteLevel("kimi-k2")}) {
    const std::shared_ptr<const Tokenizer> tokenizer = Parse(metadata);
    ExpectStreamsAreWholeTexts(*tokenizer);
    ExpectMegabytesComeBack(*tokenizer);
  }
}

// The same tokenizer as a checkpoint that is made of the file has it.
std::shared_ptr<const Tokenizer> ThroughFiles(const Json& metadata) {
  const TempDir directory;
  for (const auto& [name, text] : GgufTokenizerFiles(metadata, "m.gguf")) {
    WriteFile(directory.path() / name, text);
  }
  return LoadTokenizer(directory.path());
}

std::string FilesRefusal(const Json& metadata) {
  return RefusalOf<LoadError>([&] { GgufTokenizerFiles(metadata, "m.gguf"); });
}

// Scored() without a token that stands for its text, which tokenizer.model allows where texts begin
// as they are.
Json WithoutUserDefined() {
  Json metadata = Scored();
  metadata[kKey + "token_type"][264] = int{kUnused};
  return metadata;
}

TEST(GgufTokenizerTest, FilesOfItAreTheSameTokenizer) {
  std::vector<Json> all = {WithoutUserDefined(), Scored()};
  all[0][kKey + "eot_token_id"] = 1;
  all[1][kKey + "add_space_prefix"] = false;
  all[1][kKey + "add_bos_token"] = false;
  all[1][kKey + "eos_token_id"] = 262;  // "ab"
  for (const char* pre :
       {"gpt-2", "llama-bpe", "qwen2", "smollm", "tekken", "deepseek-llm", "kimi-k2"}) {
    all.push_back(ByteLevel(pre));
    all.back()[kKey + "eom_token_id"] = 65;
  }
  for (const Json& metadata : all) {
    SCOPED_TRACE(metadata.value(kKey + "pre", ""));
    const std::shared_ptr<const Tokenizer> tokenizer = Parse(metadata);
    const std::shared_ptr<const Tokenizer> again = ThroughFiles(metadata);
    for (const std::string& text : kTexts) {
      EXPECT_EQ(again->Encode(text), tokenizer->Encode(text)) << text;
      EXPECT_EQ(again->Encode(text, SpecialTokens::kParsed),
                tokenizer->Encode(text, SpecialTokens::kParsed))
          << text;
    }
    EXPECT_EQ(again->kind(), tokenizer->kind());
    ASSERT_EQ(again->vocab_size(), tokenizer->vocab_size());
    for (int32_t token = 0; token < tokenizer->vocab_size(); ++token) {
      EXPECT_EQ(again->Decode(token), tokenizer->Decode(token)) << token;
    }
    EXPECT_EQ(again->drops_leading_space(), tokenizer->drops_leading_space());
    EXPECT_EQ(again->begin_token(), tokenizer->begin_token());
    const std::span<const int32_t> ends = tokenizer->end_tokens();
    EXPECT_THAT(again->end_tokens(), ElementsAreArray(ends.begin(), ends.end()));
    EXPECT_EQ(again->special_tokens().size(), tokenizer->special_tokens().size());
  }
}

TEST(GgufTokenizerTest, UnpublishedSettingsAreRefused) {
  EXPECT_EQ(FilesRefusal(Scored()),
            "m.gguf, as tokenizer.model: token 264 is user-defined; supported: none where "
            "normalizer_spec.add_dummy_prefix is true");
  Json metadata = WithoutUserDefined();
  metadata[kKey + "bos_token_id"] = 262;  // "ab"
  EXPECT_EQ(FilesRefusal(metadata),
            "m.gguf, as tokenizer.model: other tokens would begin and end texts; supported: "
            "control tokens");
  EXPECT_EQ(FilesRefusal(Json::object()), "m.gguf: tokenizer.ggml.model is missing");
}

// The tokens of a text, each as its text.
std::vector<std::string> Pieces(const std::string& pre, const std::string& text) {
  const std::shared_ptr<const Tokenizer> tokenizer = Parse(ByteLevel(pre));
  std::vector<std::string> pieces;
  for (const int32_t token : tokenizer->Encode(text)) pieces.push_back(tokenizer->Decode(token));
  return pieces;
}

// Where each cuts, of which merges do not reach across.
TEST(GgufTokenizerTest, EachPreTokenizerCutsAsPublished) {
  EXPECT_THAT(Pieces("gpt-2", "1234"), ElementsAre("1234"));
  EXPECT_THAT(Pieces("llama-bpe", "1234"), ElementsAre("12", "3", "4"));  // three at a time
  EXPECT_THAT(Pieces("qwen2", "12"), ElementsAre("1", "2"));
  EXPECT_THAT(Pieces("smollm", "12"), ElementsAre("1", "2"));
  EXPECT_THAT(Pieces("tekken", "12"), ElementsAre("1", "2"));
  EXPECT_THAT(Pieces("glm4", "1234"), ElementsAre("12", "3", "4"));
  EXPECT_THAT(Pieces("deepseek-v3", "1234"), ElementsAre("12", "3", "4"));
  EXPECT_THAT(Pieces("deepseek-v3", "don't"), ElementsAre("don", "'t"));
  EXPECT_THAT(Pieces("deepseek-llm", "1234"), ElementsAre("1", "2", "3", "4"));
  EXPECT_THAT(Pieces("deepseek-llm", "don't"), ElementsAre("don", "'", "t"));
  EXPECT_THAT(Pieces("kimi-k2", "1234"), ElementsAre("12", "3", "4"));
  EXPECT_THAT(Pieces("kimi-k2", "ab 12"), ElementsAre("ab", " ", "12"));
  // A contraction in any case, or in lower case, or as a word goes on.
  EXPECT_THAT(Pieces("gpt-2", "don't"), ElementsAre("don", "'t"));
  EXPECT_THAT(Pieces("llama-bpe", "don't"), ElementsAre("don", "'t"));
  EXPECT_THAT(Pieces("qwen2", "don't"), ElementsAre("don", "'t"));
  EXPECT_THAT(Pieces("smollm", "don't"), ElementsAre("don", "'t"));
  // Newlines with what stands before.
  EXPECT_THAT(Pieces("llama-bpe", "\n\nab"), ElementsAre("\n\n", "ab"));
  EXPECT_THAT(Pieces("qwen2", "\n\nab"), ElementsAre("\n\n", "ab"));
  EXPECT_THAT(Pieces("gpt-2", "\n\nab"), ElementsAre("\n", "\n", "ab"));
  // Form C in Qwen's alone: "e" and a combining accent are one letter.
  EXPECT_THAT(Pieces("qwen2", "e\xcc\x81"), ElementsAre("é"));
  EXPECT_THAT(Pieces("llama-bpe", "e\xcc\x81"), ElementsAre("e", "\xcc", "\x81"));
}

// Llama 3's and Mistral's files: a word that is a token stays whole, whatever merges would give.
TEST(GgufTokenizerTest, WholeWordsComeBeforeMerges) {
  for (const auto& [pre, count] :
       {std::pair{"gpt-2", 3u}, {"llama-bpe", 1u}, {"qwen2", 3u}, {"smollm", 3u}, {"tekken", 1u}}) {
    Json metadata = ByteLevel(pre);
    metadata[kKey + "tokens"].push_back("xyz");
    metadata[kKey + "token_type"].push_back(int{kNormal});
    EXPECT_EQ(Parse(metadata)->Encode("xyz").size(), count) << pre;
  }
}

TEST(GgufTokenizerTest, BeginAndEndTokens) {
  Json metadata = ByteLevel("llama-bpe");
  const size_t last = metadata[kKey + "tokens"].size() - 1;
  EXPECT_EQ(Parse(metadata)->begin_token(), last);  // Llama 3's begin with it
  metadata[kKey + "add_bos_token"] = false;
  EXPECT_EQ(Parse(metadata)->begin_token(), std::nullopt);
  metadata = ByteLevel("qwen2");
  metadata[kKey + "add_bos_token"] = true;
  EXPECT_EQ(Parse(metadata)->begin_token(), last);
  metadata[kKey + "eot_token_id"] = 65;
  metadata[kKey + "eom_token_id"] = last;
  EXPECT_THAT(Parse(metadata)->end_tokens(), ElementsAre(last, 65));
  metadata.erase(kKey + "bos_token_id");
  EXPECT_EQ(Refusal(metadata),
            "m.gguf: tokenizer.ggml.bos_token_id is missing; texts begin with it");
}

TEST(GgufTokenizerTest, RefusesWhatIsNotSupported) {
  const auto with = [](Json metadata, const std::string& key, const Json& value) {
    metadata[kKey + key] = value;
    return Refusal(metadata);
  };
  EXPECT_EQ(with(Scored(), "model", "t5"),
            "m.gguf: tokenizer.ggml.model is \"t5\"; supported: \"llama\", \"gpt2\"");
  EXPECT_EQ(Refusal(Json::object()), "m.gguf: tokenizer.ggml.model is missing");
  EXPECT_EQ(with(ByteLevel("gpt-2"), "pre", "falcon"),
            "m.gguf: tokenizer.ggml.pre is \"falcon\"; supported: \"gpt-2\", \"llama-bpe\", "
            "\"llama3\", \"llama-v3\", \"smaug-bpe\", \"qwen2\", \"deepseek-r1-qwen\", \"megrez\", "
            "\"smollm\", \"starcoder\", \"refact\", \"command-r\", \"dbrx\", \"glm4\", "
            "\"olmo\", \"deepseek-llm\", \"deepseek-coder\", \"kimi-k2\", \"deepseek-v3\", "
            "\"tekken\"");
  Json without = ByteLevel("gpt-2");
  without.erase(kKey + "pre");
  EXPECT_EQ(Refusal(without), "m.gguf: tokenizer.ggml.pre is missing");
  EXPECT_EQ(with(Scored(), "remove_extra_whitespaces", true),
            "m.gguf: tokenizer.ggml.remove_extra_whitespaces is true; supported: false");
  EXPECT_EQ(with(ByteLevel("gpt-2"), "add_space_prefix", true),
            "m.gguf: tokenizer.ggml.add_space_prefix is true; supported: false");
  EXPECT_THAT(with(Scored(), "precompiled_charsmap", Json::array({1, 2})),
              HasSubstr("tokenizer.ggml.precompiled_charsmap is not a field that is known"));
  EXPECT_THAT(with(ByteLevel("gpt-2"), "normalizer.lowercase", true),
              HasSubstr("tokenizer.ggml.normalizer.lowercase is not a field that is known"));
}

TEST(GgufTokenizerTest, RefusesBrokenLists) {
  const auto with = [](Json metadata, const std::string& key, const Json& value) {
    metadata[kKey + key] = value;
    return Refusal(metadata);
  };
  for (const Json& tokenizer : {Scored(), ByteLevel("gpt-2")}) {
    const std::string count = std::to_string(tokenizer[kKey + "tokens"].size());
    EXPECT_EQ(with(tokenizer, "tokens", Json::array()),
              "m.gguf: tokenizer.ggml.tokens is a list of 0; allowed: a list of 1 to 1048576");
    EXPECT_EQ(with(tokenizer, "tokens", 3),
              "m.gguf: tokenizer.ggml.tokens is 3; allowed: a list of 1 to 1048576");
    EXPECT_EQ(with(tokenizer, "token_type", Json::array({1})),
              "m.gguf: tokenizer.ggml.token_type is a list of 1; allowed: a list of " + count);
    Json types = tokenizer[kKey + "token_type"];
    types[5] = 7;
    EXPECT_EQ(with(tokenizer, "token_type", types),
              "m.gguf: tokenizer.ggml.token_type[5] is 7; allowed: an integer from 1 to 6");
    Json tokens = tokenizer[kKey + "tokens"];
    tokens[5] = 7;
    EXPECT_EQ(with(tokenizer, "tokens", tokens),
              "m.gguf: tokenizer.ggml.tokens[5] is 7; allowed: a text");
    tokens[5] = tokens[4];
    EXPECT_THAT(with(tokenizer, "tokens", tokens), HasSubstr("another token is that too"));
    EXPECT_EQ(with(tokenizer, "eos_token_id", "</s>"),
              "m.gguf: tokenizer.ggml.eos_token_id is \"</s>\"; allowed: a token id");
  }
  EXPECT_THAT(with(Scored(), "scores", Json::array({1.0})),
              HasSubstr("m.gguf: tokenizer.ggml.scores is a list of 1; allowed: a list of 266"));
  Json scores = Scored()[kKey + "scores"];
  scores[3] = "x";
  EXPECT_EQ(with(Scored(), "scores", scores),
            "m.gguf: tokenizer.ggml.scores[3] is \"x\"; allowed: a number");
  scores[3] = std::numeric_limits<double>::infinity();
  EXPECT_EQ(with(Scored(), "scores", scores), "m.gguf: token 3 has no finite score");
  Json tokens = Scored()[kKey + "tokens"];
  tokens[3] = "<0xG0>";
  EXPECT_EQ(with(Scored(), "tokens", tokens),
            "m.gguf: token 3 is \"<0xG0>\"; allowed for bytes: \"<0x00>\" to \"<0xFF>\"");
  tokens = Scored()[kKey + "tokens"];
  tokens[260] = std::string(129, 'x');
  EXPECT_THAT(with(Scored(), "tokens", tokens), HasSubstr("allowed: at most 128 bytes"));
  tokens = Scored()[kKey + "tokens"];
  tokens[1] = std::string(257, 'x');
  EXPECT_THAT(with(Scored(), "tokens", tokens), HasSubstr("allowed: UTF-8 of at most 256 bytes"));

  EXPECT_EQ(with(ByteLevel("gpt-2"), "merges", Json::array({"a b c"})),
            "m.gguf: tokenizer.ggml: model: merges[0] is \"a b c\"; allowed: two tokens of vocab "
            "that together are one");
  EXPECT_THAT(with(ByteLevel("gpt-2"), "merges", 3), HasSubstr("merges is 3; allowed: a list"));
  Json types = ByteLevel("gpt-2")[kKey + "token_type"];
  types[5] = int{kByte};
  EXPECT_EQ(with(ByteLevel("gpt-2"), "token_type", types),
            "m.gguf: tokenizer.ggml.token_type[5] is 6; allowed with \"gpt2\": 1 to 5");
}

}  // namespace
}  // namespace triptych::checkpoint::gguf_tokenizer_test
