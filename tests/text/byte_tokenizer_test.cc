#include "engine/text/byte_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/tokenizer_checks.h"

namespace triptych::byte_tokenizer_test {
namespace {

using ::testing::ElementsAre;

TEST(ByteTokenizerTest, EncodesBytesAsTheirValues) {
  const ByteTokenizer tokenizer;
  EXPECT_THAT(tokenizer.Encode(""), ElementsAre());
  EXPECT_THAT(tokenizer.Encode(std::string_view("a\0\xC3\xA9", 4)), ElementsAre(97, 0, 195, 169));
}

TEST(ByteTokenizerTest, DecodesEveryByteBack) {
  const ByteTokenizer tokenizer;
  for (int32_t byte = 0; byte < 256; ++byte) {
    const std::string decoded = tokenizer.Decode(byte);
    ASSERT_EQ(decoded.size(), 1u);
    EXPECT_THAT(tokenizer.Encode(decoded), ElementsAre(byte));
  }
}

TEST(ByteTokenizerTest, SpecialTokensStandForNoBytes) {
  const ByteTokenizer tokenizer;
  EXPECT_EQ(tokenizer.begin_token(), 256);
  EXPECT_EQ(tokenizer.end_token(), 257);
  EXPECT_EQ(tokenizer.vocab_size(), 258);
  for (int32_t token : {256, 257}) EXPECT_EQ(tokenizer.Decode(token), "");
}

TEST(ByteTokenizerTest, StreamedPiecesAreTheWholeText) {
  ExpectStreamsAreWholeTexts(ByteTokenizer());
}

}  // namespace
}  // namespace triptych::byte_tokenizer_test
