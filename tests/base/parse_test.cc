#include "engine/base/parse.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

namespace triptych::parse_test {
namespace {

TEST(ParseNumberTest, TakesAllOfTheTextOrNothing) {
  EXPECT_EQ(ParseNumber<int64_t>("-12"), -12);
  EXPECT_EQ(ParseNumber<int64_t>("9223372036854775807"), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(ParseNumber<double>("1.5e-3"), 1.5e-3);
  for (const char* text : {"", " 1", "1 ", "+1", "1x", "0x1", "9223372036854775808", "1.5", "-"}) {
    EXPECT_EQ(ParseNumber<int64_t>(text), std::nullopt) << text;
  }
  for (const char* text : {"", " 1", "1 ", "1x", "1e", ".", "1e999"}) {
    EXPECT_EQ(ParseNumber<double>(text), std::nullopt) << text;
  }
  EXPECT_EQ(ParseNumber<uint64_t>("-1"), std::nullopt);
}

TEST(ParseNumberTest, NeitherNanNorInfinityIsANumber) {
  for (const char* text : {"nan", "NaN", "-nan", "nan(1)", "inf", "-inf", "Infinity"}) {
    EXPECT_EQ(ParseNumber<double>(text), std::nullopt) << text;
    EXPECT_EQ(ParseNumber(text, 0.0, 1e300), std::nullopt) << text;
  }
}

TEST(ParseNumberTest, HoldsTheRange) {
  EXPECT_EQ(ParseNumber("0", 0.0, 0.9), 0.0);
  EXPECT_EQ(ParseNumber("0.9", 0.0, 0.9), 0.9);
  EXPECT_EQ(ParseNumber("0.91", 0.0, 0.9), std::nullopt);
  EXPECT_EQ(ParseNumber("-0.01", 0.0, 0.9), std::nullopt);
  EXPECT_EQ(ParseNumber("4", 1, 3), std::nullopt);
}

}  // namespace
}  // namespace triptych::parse_test
