#include "engine/base/float16.h"

#include <gtest/gtest.h>

#include <cmath>

namespace triptych::float16_test {
namespace {

// Every float16, by IEEE 754's definition, in doubles, which represent them exactly.
TEST(Float16Test, IsWhatItsBitsSay) {
  for (int bits = 0; bits < 1 << 16; ++bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const double sign = bits >> 15 != 0 ? -1 : 1;
    const float value = FromFloat16(static_cast<uint16_t>(bits));
    EXPECT_EQ(std::signbit(value), bits >> 15 != 0) << bits;
    if (exponent == 31) {
      EXPECT_EQ(std::isnan(value), fraction != 0) << bits;
      EXPECT_EQ(std::isinf(value), fraction == 0) << bits;
    } else if (exponent == 0) {
      EXPECT_EQ(value, sign * std::ldexp(fraction, -24)) << bits;
    } else {
      EXPECT_EQ(value, sign * std::ldexp(1024 + fraction, exponent - 25)) << bits;
    }
  }
}

}  // namespace
}  // namespace triptych::float16_test
