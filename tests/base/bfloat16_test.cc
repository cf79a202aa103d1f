#include "engine/base/bfloat16.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace triptych::bfloat16_test {
namespace {

// Every bfloat16 converts to itself. A number between two neighbours rounds to the nearer one; a
// tie rounds to the one whose last bit is zero.
TEST(BFloat16, RoundsToNearestTiesToEven) {
  for (uint32_t i = 0; i < 0x10000; ++i) {
    const auto low = static_cast<uint16_t>(i);
    if (std::isnan(FromBFloat16(low))) continue;
    ASSERT_EQ(ToBFloat16(FromBFloat16(low)), low);
    if (std::isinf(FromBFloat16(low))) continue;
    const auto high = static_cast<uint16_t>(low + 1);  // away from zero
    const auto between = [&](uint32_t steps) { return std::bit_cast<float>((i << 16) + steps); };
    ASSERT_EQ(ToBFloat16(between(0x0001)), low);
    ASSERT_EQ(ToBFloat16(between(0x7fff)), low);
    ASSERT_EQ(ToBFloat16(between(0x8000)), low % 2 == 0 ? low : high);
    ASSERT_EQ(ToBFloat16(between(0x8001)), high);
    ASSERT_EQ(ToBFloat16(between(0xffff)), high);
  }
}

TEST(BFloat16, HasTheUpperBitsOfAFloat) {
  EXPECT_EQ(FromBFloat16(0x3f80), 1.0f);
  EXPECT_EQ(FromBFloat16(0x3f81), 1.0f + 0x1p-7f);
  EXPECT_EQ(FromBFloat16(0xc000), -2.0f);
  EXPECT_TRUE(std::signbit(FromBFloat16(0x8000)));
}

TEST(BFloat16, InfinityAndNan) {
  EXPECT_EQ(ToBFloat16(std::numeric_limits<float>::infinity()), 0x7f80);
  EXPECT_EQ(ToBFloat16(-std::numeric_limits<float>::infinity()), 0xff80);
  EXPECT_EQ(ToBFloat16(std::numeric_limits<float>::max()), 0x7f80);
  // Rounded like numbers, the first of these NaN would become infinity, the second minus zero.
  for (const uint32_t bits : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0x7fc00000u}) {
    EXPECT_EQ(ToBFloat16(std::bit_cast<float>(bits)), 0x7fc0);
  }
}

}  // namespace
}  // namespace triptych::bfloat16_test
