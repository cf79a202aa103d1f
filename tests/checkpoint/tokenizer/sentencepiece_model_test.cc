#include "engine/checkpoint/tokenizer/sentencepiece_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sentencepiece_processor.h>

#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/checkpoint/tokenizer/scored_pieces.h"
#include "tests/support/colliding_texts.h"
#include "tests/support/refusal.h"
#include "tests/support/tokenizer_checks.h"

namespace triptych::checkpoint::sentencepiece_model_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Protocol buffers' wire format, as sentencepiece_model.proto has the fields.
std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes += static_cast<char>(value);
}
std::string Number(int field, uint64_t value) { return Varint(field << 3) + Varint(value); }
std::string Bytes(int field, const std::string& value) {
  return Varint(field << 3 | 2) + Varint(value.size()) + value;
}
enum Type { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };
std::string Piece(const std::string& text, float score, Type type) {
  std::string bits(4, '\0');
  std::memcpy(bits.data(), &score, 4);
  return Bytes(1, Bytes(1, text) + Varint(2 << 3 | 5) + bits + Number(3, type));
}

// First pieces of Llama's models: the unknown token, begin and end, the bytes if it has them.
std::string FirstPieces(bool bytes = true) {
  std::string pieces =
      Piece("<unk>", 0, kUnknown) + Piece("<s>", 0, kControl) + Piece("</s>", 0, kControl);
  for (int byte = 0; bytes && byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof(name), "<0x%02X>", byte);
    pieces += Piece(name, 0, kByte);
  }
  return pieces;
}

// Llama's form: BPE with byte fallback that changes no text.
std::string Model(const std::string& normalizer = Bytes(1, "identity"), uint64_t model_type = 2) {
  std::string model = FirstPieces();
  float score = 0;
  for (const char* text : {"ab", "▁ab", "▁", "a", "b"}) model += Piece(text, score--, kNormal);
  model += Bytes(2, Number(3, model_type) + Number(35, 1));
  return model + Bytes(3, normalizer + Number(3, 1) + Number(4, 0) + Number(5, 1));
}

std::shared_ptr<const Tokenizer> Parse(const std::string& model, bool begins = true,
                                       const std::vector<int32_t>& ends = {}) {
  return ParseSentencePieceModel(model, "tokenizer.model", {.end_tokens = ends, .begins = begins});
}

TEST(SentencePieceModelTest, EncodesAndDecodes) {
  const auto tokenizer = Parse(Model());
  EXPECT_EQ(tokenizer->kind(), "BPE");
  EXPECT_EQ(tokenizer->vocab_size(), 264);
  EXPECT_EQ(tokenizer->begin_token(), 1);
  EXPECT_THAT(tokenizer->end_tokens(), ElementsAre(2));
  EXPECT_THAT(tokenizer->Encode("ab ab"), ElementsAre(260, 260));
  EXPECT_THAT(tokenizer->Encode("é"), ElementsAre(261, 3 + 0xC3, 3 + 0xA9));
  for (const std::string text :
       {"", "a", " a", "  ", "ab é 👩‍👧\n\n \u0301", "中 שלום \x01"}) {
    EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text)), text);
  }
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode("a\xff")), "a\uFFFD");
}

TEST(SentencePieceModelTest, ControlPiecesAreTextUnlessTheyAreParsed) {
  const auto tokenizer = Parse(Model(), /*begins=*/false, {1});
  EXPECT_EQ(tokenizer->begin_token(), std::nullopt);
  EXPECT_THAT(tokenizer->end_tokens(), ElementsAre(2, 1));
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode("a</s>")), "a</s>");
  EXPECT_THAT(tokenizer->Encode("ab</s>ab", SpecialTokens::kParsed), ElementsAre(260, 2, 260));
}

struct RandomOptions {
  bool adds_space = true;
  bool bytes = true;    // are tokens
  bool unused = false;  // some pieces
};

// Pieces drawn at random, of few letters, so that there are many ways to merge them.
std::string RandomModel(std::mt19937& random, const RandomOptions& options) {
  std::string model = FirstPieces(options.bytes);
  std::set<std::string> pieces = {"a", "b", "é", "▁"};
  const std::vector<std::string> letters(pieces.begin(), pieces.end());
  while (pieces.size() < 40) {
    std::string piece;
    for (size_t i = 0; i < 2 + random() % 4; ++i) piece += letters[random() % letters.size()];
    pieces.insert(piece);
  }
  const std::string user_defined = options.adds_space || options.unused ? "" : "aa▁b";
  pieces.erase(user_defined);
  for (const std::string& piece : pieces) {
    const Type type = options.unused && random() % 3 == 0 ? kUnused : kNormal;
    model += Piece(piece, -static_cast<float>(random() % 20), type);  // some alike
  }
  if (!user_defined.empty()) model += Piece(user_defined, 0, kUserDefined);
  model += Bytes(2, Number(3, 2) + Number(35, options.bytes ? 1 : 0));
  return model +
         Bytes(3, Bytes(1, "identity") + Number(3, options.adds_space ? 1 : 0) + Number(4, 0));
}

// The library itself is the reference.
TEST(SentencePieceModelTest, IsWhatTheLibraryGives) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 160; ++trial) {
    const RandomOptions options = {
        .adds_space = trial % 2 == 0, .bytes = trial % 16 < 12, .unused = trial % 4 >= 2};
    const std::string model = RandomModel(random, options);
    sentencepiece::SentencePieceProcessor library;
    ASSERT_TRUE(library.LoadFromSerializedProto(model).ok());
    const auto tokenizer = Parse(model);
    for (int i = 0; i < 100; ++i) {
      std::string text;
      for (size_t length = random() % 30; length > 0; --length) {
        const std::vector<std::string> parts = {"a", "b", "a", "b", "é", " ", " ", "c", "中", "\n"};
        text += parts[random() % parts.size()];
      }
      std::vector<int> expected;
      ASSERT_TRUE(library.Encode(text, &expected).ok());
      const std::vector<int32_t> tokens = tokenizer->Encode(text);
      ASSERT_EQ(tokens, std::vector<int32_t>(expected.begin(), expected.end()))
          << text << " in trial " << trial;
      if (!options.bytes) continue;  // it decodes what is unknown to a mark of its own
      std::string decoded;
      ASSERT_TRUE(library.Decode(expected, &decoded).ok());
      ASSERT_EQ(tokenizer->Decode(tokens), decoded) << text;
    }
  }
}

// Texts of every kind that could break it; the library is the reference here, too.
TEST(SentencePieceModelTest, IsWhatTheLibraryGivesOfEveryKindOfText) {
  const std::string model = Model();
  sentencepiece::SentencePieceProcessor library;
  ASSERT_TRUE(library.LoadFromSerializedProto(model).ok());
  const auto tokenizer = Parse(model);
  for (const std::string text :
       {"", " ", "   ", "ab AB aB", "a1 22 3,000.5", "it's WE'LL don't", "a\n\n b\t\r\nab ",
        "👩‍👩‍👧‍👦 👍🏽 🇨🇭 ❤️", "e\u0301 n\u0303\u0323 ab\u0301",
        "中文、かな、한글 ab", "שלום \u202eمرحبا\u202c", "\x01\x1b[0m\x7f ab", "<s>ab</s> <unk>",
        "<0x41> ab", "▁ab▁ ▁", "\u00a0ab\u3000ab\u2028"}) {
    std::vector<int> expected;
    ASSERT_TRUE(library.Encode(text, &expected).ok());
    const std::vector<int32_t> tokens = tokenizer->Encode(text);
    EXPECT_EQ(tokens, std::vector<int32_t>(expected.begin(), expected.end())) << text;
    std::string decoded;
    ASSERT_TRUE(library.Decode(expected, &decoded).ok());
    EXPECT_EQ(tokenizer->Decode(tokens), decoded) << text;
  }
}

TEST(SentencePieceModelTest, ReadsWrittenModels) {
  ScoredVocabulary vocabulary{.space = "▁", .adds_space = false, .begin = 2, .ends = {1, 3}};
  using Kind = ScoredPiece::Kind;
  for (const auto& [text, kind] : {std::pair{"?", Kind::kUnknown},
                                   {"<end>", Kind::kControl},
                                   {"<begin>", Kind::kControl},
                                   {"unused", Kind::kUnused},
                                   {"aa▁b", Kind::kUserDefined}}) {
    vocabulary.pieces.push_back({.text = text, .score = -0.0F, .kind = kind});
  }
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof(name), "<0x%02X>", byte);
    vocabulary.pieces.push_back({.text = name, .kind = Kind::kByte});
  }
  float score = -0.1F;
  for (const char* text : {"ab", "▁ab", "é", "▁", "a", "b"}) {
    vocabulary.pieces.push_back({.text = text, .score = score});
    score *= 1.7F;
  }
  const std::string model = WriteSentencePieceModel(vocabulary);
  const auto tokenizer = Parse(model, /*begins=*/true, vocabulary.ends);
  const auto expected = MakeScoredTokenizer(vocabulary, "pieces");
  sentencepiece::SentencePieceProcessor library;
  ASSERT_TRUE(library.LoadFromSerializedProto(model).ok());
  EXPECT_EQ(library.bos_id(), 2);
  EXPECT_EQ(library.eos_id(), 1);
  for (const std::string text : {"", "ab ab", " aba  é", "aa b", "unused", "中\n"}) {
    const std::vector<int32_t> tokens = expected->Encode(text);
    EXPECT_EQ(tokenizer->Encode(text), tokens) << text;
    std::vector<int> by_library;
    ASSERT_TRUE(library.Encode(text, &by_library).ok());
    EXPECT_EQ(std::vector<int>(tokens.begin(), tokens.end()), by_library) << text;
  }
  EXPECT_EQ(tokenizer->begin_token(), 2);
  EXPECT_THAT(tokenizer->end_tokens(), ElementsAre(1, 3));
  EXPECT_EQ(tokenizer->vocab_size(), expected->vocab_size());
}

TEST(SentencePieceModelTest, StreamedPiecesAreTheWholeText) {
  ExpectStreamsAreWholeTexts(*Parse(Model()));
}

TEST(SentencePieceModelTest, MegabytesComeBack) { ExpectMegabytesComeBack(*Parse(Model())); }

// Every piece can be cut anywhere into two others: some 60 merges for each.
TEST(SentencePieceModelTest, WaysToMergeAreBounded) {
  std::string pieces;
  constexpr size_t kLongest = 80;
  for (size_t a = 0; a <= kLongest; ++a) {
    for (size_t b = 0; a + b <= kLongest; ++b) {
      for (size_t c = 0; a + b + c <= kLongest; ++c) {
        if (a + b + c < 2) continue;
        std::string text(a, 'x');
        text.append(b, 'y').append(c, 'z');
        pieces += Piece(text, 0, kNormal);
      }
    }
  }
  for (const char* letter : {"x", "y", "z"}) pieces += Piece(letter, 0, kNormal);
  try {
    Parse(Model() + pieces);
    ADD_FAILURE() << "accepted";
  } catch (const LoadError& e) {
    EXPECT_STREQ(e.what(),
                 "tokenizer.model: its pieces are made of others in more than 4194304 ways; "
                 "allowed: at most 4194304");
  }
}

// In tables that look at all of them for each this takes a minute, and a file may hold ten times as
// many.
TEST(SentencePieceModelTest, PiecesMadeToCollideAreReadAsOthers) {
  std::string model = Model();
  const std::vector<std::string> texts = CollidingTexts(48);
  for (const std::string& text : texts) model += Piece(text, 0, kNormal);
  EXPECT_EQ(Parse(model)->vocab_size(), 264 + std::ssize(texts));
}

TEST(SentencePieceModelTest, RefusesWhatItDoesNotSupport) {
  const auto refusal = [](const std::string& model, std::vector<int32_t> ends = {}) -> std::string {
    return RefusalOf<LoadError>([&] { Parse(model, true, ends); });
  };
  EXPECT_EQ(refusal("not a model"), "tokenizer.model: is no SentencePiece model");
  EXPECT_THAT(refusal(Model(Bytes(2, "abcd"))), HasSubstr("precompiled_charsmap is 4 bytes"));
  EXPECT_THAT(refusal(Model({}, 1)), HasSubstr("trainer_spec.model_type is 1; supported: 2"));
  EXPECT_THAT(refusal(Model() + Piece(std::string(300, 'a'), 0, kNormal)),
              HasSubstr("allowed: at most 128 bytes"));
  EXPECT_THAT(refusal(Model() + Piece("x", 0, kUserDefined)), HasSubstr("264 is user-defined"));
  const std::string without_space = Bytes(3, Number(3, 0) + Number(4, 0));
  EXPECT_EQ(refusal(Model() + Piece("x", 0, kUserDefined) + without_space), "accepted");
  EXPECT_EQ(refusal(Model() + Piece("xy", 0, kUnused) + without_space), "accepted");
  EXPECT_THAT(
      refusal(Model() + Piece("x", 0, kUserDefined) + Piece("ba", 0, kUnused) + without_space),
      HasSubstr("token 265 is unused, and others merge to it; supported: no such token "
                "where some are user-defined"));
  EXPECT_THAT(refusal(Model() + Bytes(3, Number(4, 1))),
              HasSubstr("remove_extra_whitespaces is true; supported: false"));
  EXPECT_THAT(refusal(Model() + Bytes(1, Bytes(1, "x") + Number(3, 9))),
              HasSubstr("token 264 is of type 9"));
  EXPECT_THAT(refusal(""), HasSubstr("tokenizer.model: "));
  std::string control;
  for (int i = 0; i < 17'000; ++i) {
    control += Piece(std::to_string(i) + std::string(250, 'x'), 0, kControl);
  }
  EXPECT_THAT(
      refusal(Model() + control),
      HasSubstr(
          "brings special and user-defined tokens to 4194362 bytes; allowed: at most 4194304"));
  EXPECT_THAT(Parse(Model(), true, {264})->end_tokens(), ElementsAre(2)) << "it is passed over";
  const std::string whole = Model();
  for (size_t length = 1; length < whole.size(); length += 5) {
    try {
      Parse(whole.substr(0, length));
    } catch (const LoadError&) {
    }
  }
}

}  // namespace
}  // namespace triptych::checkpoint::sentencepiece_model_test
