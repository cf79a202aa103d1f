#include "engine/text/sentencepiece_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "engine/base/error.h"

namespace triptych {
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
enum Type { kNormal = 1, kUnknown = 2, kControl = 3, kByte = 6 };
std::string Piece(const std::string& text, float score, Type type) {
  std::string bits(4, '\0');
  std::memcpy(bits.data(), &score, 4);
  return Bytes(1, Bytes(1, text) + Varint(2 << 3 | 5) + bits + Number(3, type));
}

// Llama's form: BPE with byte fallback that changes no text.
std::string Model(const std::string& normalizer = Bytes(1, "identity"), uint64_t model_type = 2) {
  std::string model =
      Piece("<unk>", 0, kUnknown) + Piece("<s>", 0, kControl) + Piece("</s>", 0, kControl);
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof(name), "<0x%02X>", byte);
    model += Piece(name, 0, kByte);
  }
  float score = 0;
  for (const char* text : {"ab", "▁ab", "▁", "a", "b"}) model += Piece(text, score--, kNormal);
  model += Bytes(2, Number(3, model_type) + Number(35, 1));
  return model + Bytes(3, normalizer + Number(3, 1) + Number(4, 0) + Number(5, 1));
}

TEST(SentencePieceTokenizerTest, EncodesAndDecodes) {
  const SentencePieceTokenizer tokenizer(Model(), "tokenizer.model", /*begins=*/true, {});
  EXPECT_EQ(tokenizer.kind(), "SentencePiece");
  EXPECT_EQ(tokenizer.vocab_size(), 264);
  EXPECT_EQ(tokenizer.begin_token(), 1);
  EXPECT_THAT(tokenizer.end_tokens(), ElementsAre(2));
  EXPECT_THAT(tokenizer.Encode("ab ab"), ElementsAre(260, 260));
  EXPECT_THAT(tokenizer.Encode("é"), ElementsAre(261, 3 + 0xC3, 3 + 0xA9));
  for (const std::string text :
       {"", "a", " a", "  ", "ab é 👩‍👧\n\n \u0301", "中 שלום \x01"}) {
    EXPECT_EQ(tokenizer.Decode(tokenizer.Encode(text)), text);
  }
  EXPECT_EQ(tokenizer.Decode(tokenizer.Encode("a\xff")), "a\uFFFD");
}

TEST(SentencePieceTokenizerTest, ControlPiecesAreTextUnlessTheyAreParsed) {
  const SentencePieceTokenizer tokenizer(Model(), "tokenizer.model", /*begins=*/false, {1});
  EXPECT_EQ(tokenizer.begin_token(), std::nullopt);
  EXPECT_THAT(tokenizer.end_tokens(), ElementsAre(2, 1));
  EXPECT_EQ(tokenizer.Decode(tokenizer.Encode("a</s>")), "a</s>");
  EXPECT_THAT(tokenizer.Encode("ab</s>ab", SpecialTokens::kParsed), ElementsAre(260, 2, 260));
}

TEST(SentencePieceTokenizerTest, StreamedPiecesAreTheWholeText) {
  const SentencePieceTokenizer tokenizer(Model(), "tokenizer.model", /*begins=*/true, {});
  std::mt19937 random(13);
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<int32_t> tokens(random() % 20);
    for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 270) - 2;
    TokenStream stream;
    std::string streamed;
    for (const int32_t token : tokens) streamed += stream.Push(tokenizer, token);
    ASSERT_EQ(streamed, tokenizer.Decode(tokens));
  }
}

TEST(SentencePieceTokenizerTest, RefusesWhatItDoesNotSupport) {
  const auto refusal = [](const std::string& model, std::vector<int32_t> ends = {}) -> std::string {
    try {
      SentencePieceTokenizer(model, "tokenizer.model", true, ends);
    } catch (const LoadError& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refusal("not a model"), "tokenizer.model: is no SentencePiece model");
  EXPECT_THAT(refusal(Model(Bytes(2, "abcd"))), HasSubstr("precompiled_charsmap is 4 bytes"));
  EXPECT_THAT(refusal(Model({}, 4)), HasSubstr("trainer_spec.model_type is 4; supported: 1"));
  EXPECT_THAT(refusal(Model() + Piece(std::string(300, 'a'), 0, kNormal)),
              HasSubstr("300 bytes long; allowed: at most 256"));
  EXPECT_THAT(refusal(""), HasSubstr("tokenizer.model: "));
  EXPECT_THAT(refusal(Model(), {264}), HasSubstr("has no token 264"));
  const std::string whole = Model();
  for (size_t length = 1; length < whole.size(); length += 5) {
    try {
      SentencePieceTokenizer(whole.substr(0, length), "tokenizer.model", true, {});
    } catch (const LoadError&) {
    }
  }
}

}  // namespace
}  // namespace triptych
