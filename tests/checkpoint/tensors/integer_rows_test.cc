#include "engine/checkpoint/tensors/integer_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "engine/base/bfloat16.h"
#include "engine/kernels/quantization.h"

namespace triptych::checkpoint::integer_rows_test {
namespace {

using ::testing::ElementsAre;

struct Row {
  std::vector<std::byte> integers;
  std::vector<uint16_t> scales;
};

Row Stored(WeightFormat format, const std::vector<float>& weights) {
  const IntegerRow shape = IntegerRowOf(format, std::ssize(weights));
  // Whatever was there before is overwritten.
  Row row{.integers = std::vector<std::byte>(shape.elements, std::byte{0xff}),
          .scales = std::vector<uint16_t>(shape.scales)};
  StoreRow(format, weights, row.integers, row.scales);
  return row;
}

TEST(IntegerRowsTest, LieAsTheFormatSays) {
  // The largest is the least integer, and its scale 1 or -1.
  const Row eight = Stored(WeightFormat::kInt8, {-127, 126, 0, -1, 5});
  EXPECT_THAT(eight.integers, ElementsAre(std::byte{0x81}, std::byte{126}, std::byte{0},
                                          std::byte{0xff}, std::byte{5}));
  EXPECT_THAT(eight.scales, ElementsAre(ToBFloat16(1)));
  // The even ones in the low four bits; the last of an odd number alone.
  const Row four = Stored(WeightFormat::kInt4, {-8, 7, 0, -1, 5});
  EXPECT_THAT(four.integers, ElementsAre(std::byte{0x78}, std::byte{0xf0}, std::byte{0x05}));
  EXPECT_THAT(four.scales, ElementsAre(ToBFloat16(1)));
}

TEST(IntegerRowsTest, AreReadAsEachGroupWasRounded) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  for (const WeightFormat format : {WeightFormat::kInt8, WeightFormat::kInt4}) {
    for (const size_t inputs : {1, 2, 31, 32, 33, 64, 100}) {
      std::vector<float> weights(inputs), expected(inputs), read(inputs);
      for (float& weight : weights) weight = normal(generator);
      for (size_t begin = 0; begin < inputs; begin += kQuantizationGroup) {
        std::array<int8_t, kQuantizationGroup> integers;
        const size_t width = std::min<size_t>(kQuantizationGroup, inputs - begin);
        const float scale = FromBFloat16(kernels::Quantize(
            format, std::span<const float>(weights).subspan(begin, width), integers));
        for (size_t i = 0; i < width; ++i) {
          expected[begin + i] = static_cast<float>(integers[i]) * scale;
        }
      }
      const Row row = Stored(format, weights);
      ReadRow(format, row.integers, row.scales, read);
      EXPECT_EQ(read, expected) << inputs;
    }
  }
}

}  // namespace
}  // namespace triptych::checkpoint::integer_rows_test
