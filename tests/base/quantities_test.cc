#include "engine/base/quantities.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace triptych::quantities_test {
namespace {

TEST(QuantitiesTest, Count) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(1000), "1,000");
  EXPECT_EQ(FormatCount(-1000), "-1,000");
  EXPECT_EQ(FormatCount(-999), "-999");
  EXPECT_EQ(FormatCount(1234567), "1,234,567");
  EXPECT_EQ(FormatCount(std::numeric_limits<int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(QuantitiesTest, Decimal) {
  EXPECT_EQ(FormatDecimal(0, 1), "0.0");
  EXPECT_EQ(FormatDecimal(-1234.56, 1), "-1,234.6");
  EXPECT_EQ(FormatDecimal(-123.4, 3), "-123.400");
  EXPECT_EQ(FormatDecimal(1234567.891, 2), "1,234,567.89");
}

TEST(QuantitiesTest, Bytes) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1024), "1.0 KiB");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes((int64_t{1} << 20) - 1), "1.0 MiB");
  EXPECT_EQ(FormatBytes(int64_t{3} << 30), "3.0 GiB");
  EXPECT_EQ(FormatBytes(std::numeric_limits<int64_t>::max()), "8,192.0 PiB");
}

TEST(QuantitiesTest, WrittenBytes) {
  EXPECT_EQ(ParseBytes("1"), 1);
  EXPECT_EQ(ParseBytes("7B"), 7);
  EXPECT_EQ(ParseBytes("4KiB"), 4096);
  EXPECT_EQ(ParseBytes("1.5GiB"), 3 << 29);
  EXPECT_EQ(ParseBytes("1TB"), 1'000'000'000'000);
  EXPECT_EQ(ParseBytes("4194304TiB"), int64_t{1} << 62);
  for (const char* text : {"", "GiB", "0", "0.5", "-1", "1 GiB", "1gib", "1GiB ", "nan", "inf",
                           "1e400", "4194305TiB", "25%", "0x10"}) {
    EXPECT_FALSE(ParseBytes(text)) << text;
  }
}

}  // namespace
}  // namespace triptych::quantities_test
