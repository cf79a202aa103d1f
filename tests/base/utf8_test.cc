#include "engine/base/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace triptych::utf8_test {
namespace {

using std::string_literals::operator""s;

TEST(Utf8Test, AcceptsWellFormedText) {
  for (const std::string& text : {""s, "ascii \0 too"s, "é"s, "日本"s, "\U0001F600"s, "\xc2\x80"s,
                                  "\xdf\xbf"s, "\xe0\xa0\x80"s, "\xed\x9f\xbf"s, "\xee\x80\x80"s,
                                  "\xef\xbf\xbf"s, "\xf0\x90\x80\x80"s, "\xf4\x8f\xbf\xbf"s}) {
    EXPECT_EQ(FindInvalidUtf8(text), std::nullopt) << text;
  }
}

TEST(Utf8Test, FindsTheFirstMalformedByte) {
  for (const std::string& malformed :
       {"\x80"s, "\xbf"s, "\xc0\x80"s, "\xc1\xbf"s, "\xc3"s, "\xc3("s, "\xe0\x9f\xbf"s, "\xe2\x82"s,
        "\xed\xa0\x80"s, "\xf0\x8f\xbf\xbf"s, "\xf0\x9f\x98"s, "\xf4\x90\x80\x80"s,
        "\xf5\x80\x80\x80"s, "\xff"s}) {
    EXPECT_EQ(FindInvalidUtf8(malformed), 0u);
    EXPECT_EQ(FindInvalidUtf8("é" + malformed + "x"), 2u);
  }
}

}  // namespace
}  // namespace triptych::utf8_test
