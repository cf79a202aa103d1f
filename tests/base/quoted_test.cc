#include "engine/base/quoted.h"

#include <gtest/gtest.h>

#include <string>

#include "engine/base/utf8.h"

namespace triptych::quoted_test {
namespace {

using std::string_literals::operator""s;

TEST(QuotedTest, KeepsTextAsItIs) {
  EXPECT_EQ(Printable("model.layers.0.q_proj é日本\U0001F600"),
            "model.layers.0.q_proj é日本\U0001F600");
  EXPECT_EQ(Printable(""), "");
  EXPECT_EQ(Quoted("a b"), "\"a b\"");
}

TEST(QuotedTest, NothingReachesATerminalAsACommand) {
  EXPECT_EQ(Printable("a\nb\x1b[2J\r\0\x7f"s), "a\\x0ab\\x1b[2J\\x0d\\x00\\x7f");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "2J"),
            "\\xc2\\x9b2J");                                               // 8-bit CSI
  EXPECT_EQ(Printable("\u202e\u2066"), "\\xe2\\x80\\xae\\xe2\\x81\\xa6");  // bidirectional controls
  EXPECT_EQ(Printable("\u2010\u2030"), "\u2010\u2030");
}

TEST(QuotedTest, BytesThatAreNoTextAreEscaped) {
  EXPECT_EQ(Printable("a\xff\xe2\x82z\xc3"), "a\\xff\\xe2\\x82z\\xc3");
}

TEST(QuotedTest, QuotationMarksAndBackslashesAreUnambiguous) {
  EXPECT_EQ(Quoted("a\"b\\"), "\"a\\\"b\\\\\"");
  EXPECT_EQ(Printable("\"a\\n\""), "\"a\\n\"");  // a value's own notation
}

TEST(QuotedTest, IsClippedBetweenCharacters) {
  EXPECT_EQ(Printable(std::string(80, 'a')), std::string(80, 'a'));
  EXPECT_EQ(Printable(std::string(81, 'a')), std::string(80, 'a') + "...");
  EXPECT_EQ(Printable("aaaé", 4), "aaa...");
  for (const char* piece : {"\n", "\xff", "é", "\xe2\x82"}) {
    std::string text;
    while (text.size() < 1'000'000) text += piece;
    EXPECT_LE(Printable(text).size(), 4 * kShownBytes + 3);
    EXPECT_EQ(FindInvalidUtf8(Quoted(text)), std::nullopt);
  }
}

}  // namespace
}  // namespace triptych::quoted_test
