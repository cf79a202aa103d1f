#include "engine/checkpoint/tokenizer/json_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/checkpoint/tokenizer/scored_pieces.h"
#include "engine/checkpoint/tokenizer/sentencepiece_model.h"
#include "engine/checkpoint/tokenizer/tokenizer_json.h"
#include "tests/support/refusal.h"
#include "tests/support/tokenizer_checks.h"
#include "tests/support/tokenizer_files.h"

namespace triptych::checkpoint::json_model_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::shared_ptr<const Tokenizer> Parse(const Json& json) {
  return ParseTokenizerJson(json.dump(), "tokenizer.json", {.end_text = "</s>"});
}

std::string Refusal(const Json& json) {
  return RefusalOf<LoadError>([&] { Parse(json); });
}

Json Special(int id, const char* text) {
  return {{"id", id}, {"content", text}, {"special", true}};
}

// Words of letters and runs of other characters.
Json Words() {
  return {{"added_tokens", Json::array({Special(0, "[UNK]"), Special(1, "</s>")})},
          {"pre_tokenizer", {{"type", "Whitespace"}}},
          {"model",
           {{"type", "WordLevel"},
            {"unk_token", "[UNK]"},
            {"vocab",
             {{"[UNK]", 0}, {"</s>", 1}, {"hello", 2}, {"world", 3}, {"!?", 4}, {"naïve_1", 5}}}}}};
}

TEST(JsonModelTest, WordLevelHasATokenForEachWord) {
  const auto tokenizer = Parse(Words());
  EXPECT_EQ(tokenizer->kind(), "WordLevel");
  EXPECT_THAT(tokenizer->Encode("hello  world!?\n"), ElementsAre(2, 3, 4));
  EXPECT_THAT(tokenizer->Encode("naïve_1 Hello"), ElementsAre(5, 0));
  EXPECT_THAT(tokenizer->Encode("hello</s>", SpecialTokens::kParsed), ElementsAre(2, 1));
  EXPECT_THAT(tokenizer->Encode("</s>"), ElementsAre(0, 0, 0));
  EXPECT_THAT(tokenizer->Encode(" \n"), ElementsAre());
  // Without a decoder there is a space between words.
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{2, 3, 4}), "hello world !?");
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{0, 2, 1}), "hello");
  ExpectStreamsAreWholeTexts(*tokenizer);
  Json by_space = Words();
  by_space["pre_tokenizer"]["type"] = "WhitespaceSplit";
  EXPECT_THAT(Parse(by_space)->Encode(" hello\tworld!?"), ElementsAre(2, 0));
}

TEST(JsonModelTest, RefusesWordsWithoutAnUnknownToken) {
  Json json = Words();
  json["model"]["unk_token"] = "[PAD]";
  EXPECT_EQ(Refusal(json),
            "tokenizer.json: model: unk_token is \"[PAD]\"; allowed: a token of vocab");
  json["model"].erase("unk_token");
  EXPECT_EQ(Refusal(json), "tokenizer.json: model: unk_token is null; allowed: a token of vocab");
  json = Words();
  json["pre_tokenizer"]["type"] = "ByteLevel";
  json["decoder"] = {{"type", "ByteLevel"}};
  EXPECT_THAT(Refusal(json), HasSubstr("supported with ByteLevel: BPE"));
}

// The same vocabulary as a tokenizer.json and as a model of the SentencePiece library.
struct Vocabulary {
  explicit Vocabulary(bool bytes) : byte_fallback(bytes) {
    scored = {.pieces = {{"<unk>", 0, ScoredPiece::kUnknown},
                         {"<s>", 0, ScoredPiece::kControl},
                         {"</s>", 0, ScoredPiece::kControl}},
              .space = kMetaspace,
              .begin = 1,
              .ends = {2}};
    if (!bytes) return;
    for (int byte = 0; byte < 256; ++byte) {
      char name[8];
      std::snprintf(name, sizeof(name), "<0x%02X>", byte);
      scored.pieces.push_back({name, 0, ScoredPiece::kByte});
    }
  }

  void Add(const std::string& text, float score) { scored.pieces.push_back({text, score}); }

  Json ToJson() const {
    Json json = SentencePieceStyleJson();
    Json vocab = Json::array();
    for (const ScoredPiece& piece : scored.pieces) vocab.push_back({piece.text, piece.score});
    json["model"] = {
        {"type", "Unigram"}, {"unk_id", 0}, {"vocab", vocab}, {"byte_fallback", byte_fallback}};
    return json;
  }

  std::string ToModel() const {
    std::string model = WriteSentencePieceModel(scored);
    // trainer_spec begins with the kind of model, BPE; 1 is the unigram model.
    model[model.find("\x18\x02\x98\x02") + 1] = '\x01';
    return model;
  }

  bool byte_fallback;
  ScoredVocabulary scored;
};

void ExpectAsTheLibrary(const Vocabulary& vocabulary, const std::vector<std::string>& texts) {
  const auto tokenizer = Parse(vocabulary.ToJson());
  EXPECT_EQ(tokenizer->kind(), "Unigram");
  sentencepiece::SentencePieceProcessor library;
  ASSERT_TRUE(library.LoadFromSerializedProto(vocabulary.ToModel()).ok());
  for (const std::string& text : texts) {
    std::vector<int> expected;
    ASSERT_TRUE(library.Encode(text, &expected).ok());
    const std::vector<int32_t> tokens = tokenizer->Encode(text);
    std::vector<int> sorted(tokens.begin(), tokens.end());
    // The library sums in single precision: where the same pieces fit in two orders, its rounding
    // decides.
    std::sort(sorted.begin(), sorted.end());
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(sorted, expected) << text;
    if (vocabulary.byte_fallback) {
      EXPECT_EQ(tokenizer->Decode(tokens), text);
    }
  }
}

TEST(JsonModelTest, UnigramIsTheLibrarys) {
  for (const bool bytes : {false, true}) {
    Vocabulary vocabulary(bytes);
    vocabulary.Add("▁", -2);
    for (const auto& [text, score] : std::vector<std::pair<std::string, float>>{{"a", -3},
                                                                                {"b", -3.5F},
                                                                                {"ab", -4},
                                                                                {"▁ab", -5},
                                                                                {"abab", -9.5F},
                                                                                {"é", -4},
                                                                                {"bé", -6}}) {
      vocabulary.Add(text, score);
    }
    ExpectAsTheLibrary(vocabulary,
                       {"", "a", "ab", "abab", "ababab ab", "  a", "xyz", "a中文b", "é", "abé",
                        "aé 👩‍👧x", "<unk>", "<s>ab</s>", "<0x41>", "\n"});
  }
}

// Texts and pieces of three letters, so that many segmentations compete.
TEST(JsonModelTest, UnigramIsTheLibrarysForRandomVocabularies) {
  std::mt19937 generator(7);
  const auto word = [&](size_t most) {
    static const std::string kLetters[] = {"a", "b", "ü", "▁"};
    std::string text;
    for (size_t i = 1 + generator() % most; i > 0; --i) text += kLetters[generator() % 4];
    return text;
  };
  for (int round = 0; round < 30; ++round) {
    Vocabulary vocabulary(round % 2 == 0);
    vocabulary.Add("▁", -7);  // otherwise spaces become bytes of it
    std::vector<std::string> known = {"▁"};
    for (int i = 0; i < 40; ++i) {
      const std::string text = word(4);
      if (std::find(known.begin(), known.end(), text) != known.end()) continue;
      known.push_back(text);
      // Distinct sums: equal ones would be chosen in any order.
      vocabulary.Add(text, -1.0F - static_cast<float>(generator() % 1'000'003) / 100'000.0F);
    }
    std::vector<std::string> texts;
    for (int i = 0; i < 20; ++i) texts.push_back(word(30));
    for (std::string& text : texts) {
      for (size_t at = text.find("▁"); at != text.npos; at = text.find("▁"))
        text.replace(at, 3, " ");
    }
    ExpectAsTheLibrary(vocabulary, texts);
  }
}

// T5's and XLM-R's steps before the model.
TEST(JsonModelTest, UnigramOfMetaspaceWords) {
  Vocabulary vocabulary(true);
  for (const char* text : {"▁", "a", "▁a", "a▁a"}) vocabulary.Add(text, -1);
  Json json = vocabulary.ToJson();
  json["normalizer"] = nullptr;
  const Json metaspace = {
      {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "always"}};
  json["decoder"] = metaspace;
  json["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers", Json::array({{{"type", "WhitespaceSplit"}}, metaspace})}};
  const auto tokenizer = Parse(json);
  EXPECT_THAT(tokenizer->Encode("a  a"), ElementsAre(261, 261));
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode("a a")), "a a");
  ExpectStreamsAreWholeTexts(*tokenizer);
}

TEST(JsonModelTest, RefusesUnigramsThatAreNone) {
  Vocabulary vocabulary(false);
  vocabulary.Add("a", -1);
  const Json good = vocabulary.ToJson();
  EXPECT_EQ(Refusal(good), "accepted");
  const auto refusal = [&](const char* field, const Json& value) {
    Json json = good;
    json["model"][field] = value;
    return Refusal(json);
  };
  const std::string piece = "allowed: a text of at most 256 bytes, and a number";
  for (const Json& bad : {Json("a"), Json::array({"a"}), Json::array({"a", "b"}),
                          Json::array({1, 2}), Json::array({std::string(257, 'a'), 1})}) {
    EXPECT_THAT(refusal("vocab", Json::array({bad})), HasSubstr(piece)) << bad;
  }
  EXPECT_THAT(refusal("vocab", {{"a", 1}}), HasSubstr("vocab is"));
  EXPECT_THAT(refusal("vocab", Json::array({{"a", 1}, {"a", 2}})),
              HasSubstr("another token is that too"));
  EXPECT_THAT(refusal("unk_id", 4), HasSubstr("unk_id is 4; allowed: an integer from 0 to 3"));
  EXPECT_THAT(refusal("unk_id", "a"), HasSubstr("unk_id is \"a\""));
  EXPECT_THAT(refusal("extra", 1), HasSubstr("extra is not a field that is known"));
}

// The time of a word grows as its length, however many pieces begin at each place.
TEST(JsonModelTest, LongWordsOfOneLetter) {
  Vocabulary vocabulary(true);
  vocabulary.Add("▁", -1);
  for (size_t length = 1; length <= 256; length *= 2) {
    vocabulary.Add(std::string(length, 'a'), -1.0F);
  }
  const auto tokenizer = Parse(vocabulary.ToJson());
  const std::string text(1 << 20, 'a');
  EXPECT_EQ(tokenizer->Encode(text).size(), 1 + (1 << 20) / 256);
  ExpectMegabytesComeBack(*tokenizer);
}

}  // namespace
}  // namespace triptych::checkpoint::json_model_test
