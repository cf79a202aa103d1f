#include "engine/checkpoint/tokenizer/llama2c_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "engine/base/error.h"
#include "tests/support/llama2c_file.h"
#include "tests/support/refusal.h"
#include "tests/support/tokenizer_checks.h"

namespace triptych::checkpoint::llama2c_tokenizer_test {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

std::string Token(float score, const std::string& text) {
  return BytesOf(score) + BytesOf(static_cast<int32_t>(text.size())) + text;
}

// Llama2cTokenizer's 261 tokens, and three that are merged: "ab", then " a", then " ab".
std::string File() {
  return Llama2cTokenizer() + Token(-1, "ab") + Token(-2, " a") + Token(-3, " ab") + Token(0, " ");
}

std::shared_ptr<const Tokenizer> Parse(const std::string& bytes) {
  return ParseLlama2cTokenizer(bytes, "tokenizer.bin");
}

std::string Refusal(const std::string& bytes) {
  return RefusalOf<LoadError>([&] { Parse(bytes); });
}

// As llama2.c's encode() does it: a space comes before, letters without a token are bytes, which
// begin at token 3, and neighbours of the best score are merged first.
TEST(Llama2cTokenizerTest, EncodesAndDecodes) {
  const auto tokenizer = Parse(File());
  EXPECT_EQ(tokenizer->kind(), "BPE");
  EXPECT_EQ(tokenizer->vocab_size(), 265);
  EXPECT_EQ(tokenizer->begin_token(), 1);
  EXPECT_THAT(tokenizer->end_tokens(), ElementsAre(2));
  EXPECT_TRUE(tokenizer->drops_leading_space());
  EXPECT_THAT(tokenizer->Encode("ab"), ElementsAre(263));
  EXPECT_THAT(tokenizer->Encode("a"), ElementsAre(262));
  EXPECT_THAT(tokenizer->Encode("bab é"), ElementsAre(264, 260, 261, 264, 3 + 0xC3, 3 + 0xA9));
  EXPECT_THAT(tokenizer->Encode("\n"), ElementsAre(264, 3 + '\n'));
  for (const std::string text : {"", "a", " a", "  ", "ab é 👩‍👧\n\n \u0301",
                                 "中 שלום \x01", "<s>a</s>", "<0x41>"}) {
    EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text)), text);
  }
  EXPECT_THAT(tokenizer->Encode("a</s>", SpecialTokens::kParsed), ElementsAre(262, 2));
}

TEST(Llama2cTokenizerTest, StreamedPiecesAreTheWholeTextAndMegabytesComeBack) {
  ExpectStreamsAreWholeTexts(*Parse(File()));
  ExpectMegabytesComeBack(*Parse(File()));
}

// A file that ends between two tokens has fewer of them, and that is all that it can be.
TEST(Llama2cTokenizerTest, RefusesEveryTruncation) {
  const std::string file = File(), least = Llama2cTokenizer();
  const size_t letter = Token(0, "a").size();  // two letters come after the bytes
  for (size_t size = 0; size < file.size(); ++size) {
    const std::string refusal = Refusal(file.substr(0, size));
    if (refusal == "accepted") {
      EXPECT_GE(size, least.size() - 2 * letter);
      EXPECT_LT(Parse(file.substr(0, size))->vocab_size(), 265);
    } else {
      EXPECT_THAT(refusal, StartsWith("tokenizer.bin: ")) << size;
    }
  }
  EXPECT_EQ(Refusal(""), "tokenizer.bin: ends inside a token");
  EXPECT_EQ(Refusal(file + "abc"), "tokenizer.bin: ends inside a token");
  EXPECT_EQ(Refusal(BytesOf(int32_t{6}) + Token(0, "a")),
            "tokenizer.bin: has 1 tokens; allowed: at least 259");
}

TEST(Llama2cTokenizerTest, RefusesBrokenTokens) {
  for (const int32_t length :
       {-1, 129, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()}) {
    EXPECT_EQ(Refusal(File() + BytesOf(0.0F) + BytesOf(length) + std::string(128, 'x')),
              "tokenizer.bin: token 265 is " + std::to_string(length) +
                  " bytes long; allowed: 0 to 128, and no more than the file holds");
  }
  EXPECT_EQ(Refusal(File() + BytesOf(0.0F) + BytesOf(int32_t{4}) + "abc"),
            "tokenizer.bin: token 265 is 4 bytes long; allowed: 0 to 128, and no more than the "
            "file holds");
  for (const float score :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_EQ(Refusal(File() + Token(score, "x")), "tokenizer.bin: token 265 has no finite score");
  }
  EXPECT_EQ(Refusal(File() + Token(0, "ab")),
            "tokenizer.bin: token 265 is \"ab\", which another one is too");
  std::string bytes = File();
  bytes.replace(bytes.find("<0x41>"), 6, "<0xzz>");
  EXPECT_EQ(Refusal(bytes),
            "tokenizer.bin: token 68 is \"<0xzz>\"; allowed for bytes: \"<0x00>\" to \"<0xFF>\"");
}

}  // namespace
}  // namespace triptych::checkpoint::llama2c_tokenizer_test
