#include "engine/kernels/quantization.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "engine/base/bfloat16.h"
#include "engine/kernels/packed_format.h"
#include "tests/support/instruction_sets.h"

namespace triptych::kernels::quantization_test {
namespace {

constexpr WeightFormat kIntegers[] = {WeightFormat::kInt8, WeightFormat::kInt4};

std::vector<float> Normal(int64_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(count);
  for (float& number : numbers) number = normal(generator);
  return numbers;
}

// A group's quantized values, as floats.
std::vector<float> RoundTrip(WeightFormat format, const std::vector<float>& weights) {
  std::array<int8_t, kQuantizationGroup> integers;
  const float scale = FromBFloat16(Quantize(format, weights, integers));
  std::vector<float> rounded(weights.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    rounded[i] = static_cast<float>(integers[i]) * scale;
  }
  return rounded;
}

double SquaredError(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0;
  for (size_t i = 0; i < a.size(); ++i) error += std::pow(static_cast<double>(a[i]) - b[i], 2);
  return error;
}

struct Quantized {
  uint16_t scale;
  std::vector<int> integers;
  bool operator==(const Quantized&) const = default;
};

// The definition of Quantize, without vectors.
Quantized Defined(WeightFormat format, std::vector<float> weights) {
  const bool four_bits = format == WeightFormat::kInt4;
  const float least = four_bits ? -8 : -127, most = four_bits ? 7 : 127;
  weights.resize(kQuantizationGroup);
  const float largest = *std::max_element(
      weights.begin(), weights.end(), [](float a, float b) { return std::abs(a) < std::abs(b); });
  const auto usable_scale = [&](float steps) {
    const float scale = FromBFloat16(ToBFloat16(largest / steps));
    return std::isnormal(scale) && std::isnormal(1 / scale) && std::isfinite(least * scale) ? scale
                                                                                            : 0;
  };
  const auto nearest = [&](float weight, float scale) {
    return std::nearbyint(std::clamp(weight * (1 / scale), least, most));
  };
  float chosen = 0;
  for (const float share : {0.0f, 0x1p-8f}) {
    for (int integer = -8; four_bits && integer < 8 && chosen == 0; ++integer) {
      const float scale = usable_scale(static_cast<float>(integer));
      if (scale != 0 && std::all_of(weights.begin(), weights.end(), [&](float weight) {
            return std::abs(nearest(weight, scale) * scale - weight) <= share * std::abs(weight);
          })) {
        chosen = scale;
      }
    }
  }
  float least_error = 0;
  for (int i = 0, known = chosen != 0; i < (four_bits ? 16 : 1) && !known; ++i) {
    const float scale = usable_scale(least * (1 + 0.025f * static_cast<float>(i)));
    if (scale == 0) continue;
    float errors[8] = {}, error = 0;
    for (int k = 0; k < kQuantizationGroup; ++k) {
      const float miss = nearest(weights[k], scale) * scale - weights[k];
      errors[k % 8] += miss * miss;
    }
    for (const float part : errors) error += part;
    if (chosen != 0 && error >= least_error) continue;
    chosen = scale;
    least_error = error;
  }
  Quantized quantized{ToBFloat16(chosen), {}};
  for (const float weight : weights) {
    quantized.integers.push_back(chosen == 0 ? 0 : static_cast<int>(nearest(weight, chosen)));
  }
  return quantized;
}

class QuantizeOnEverySetTest : public InstructionSetTest {};
INSTANTIATE_TEST_SUITE_P(Targets, QuantizeOnEverySetTest, testing::ValuesIn(InstructionSets()),
                         InstructionSetName);

// Weights of a normal distribution, in bfloat16, integers times a scale in bfloat16 or of 11 bits
// (as in GGUF's Q4_0), and weights of any magnitude, most of them zero.
TEST_P(QuantizeOnEverySetTest, RoundsAsDefined) {
  std::mt19937 generator(3);
  for (unsigned seed = 0; seed < 3000; ++seed) {
    std::vector<float> weights = Normal(kQuantizationGroup, seed);
    const float scale = std::abs(Normal(1, seed + 7)[0]);
    const float halves = std::bit_cast<float>(std::bit_cast<uint32_t>(scale) & ~0x1fffU);
    const int exponent = static_cast<int>(generator() % 250) - 125;
    for (float& weight : weights) {
      const auto integer = static_cast<float>(static_cast<int>(generator() % 16) - 8);
      switch (seed % 5) {
        case 0:
          break;
        case 1:
          weight = FromBFloat16(ToBFloat16(weight));
          break;
        case 2:
          weight = integer * FromBFloat16(ToBFloat16(scale));
          break;
        case 3:
          weight = integer * halves;
          break;
        case 4:
          weight = generator() % 3 == 0 ? std::ldexp(weight, exponent) : 0;
          break;
      }
    }
    for (const WeightFormat format : kIntegers) {
      std::array<int8_t, kQuantizationGroup> integers;
      const uint16_t bits = Quantize(format, weights, integers);
      EXPECT_EQ((Quantized{bits, {integers.begin(), integers.end()}}), Defined(format, weights))
          << seed << " " << Name(format);
    }
  }
}

TEST(QuantizeTest, EightBitsAreWithinHalfAStep) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    const std::vector<float> weights = Normal(seed % kQuantizationGroup + 1, seed);
    float most = 0;
    for (const float weight : weights) most = std::max(most, std::abs(weight));
    // Rounding to bfloat16 makes a step up to 2^-9 shorter or longer than the largest / 127.
    const float step = most / 127 * (1 + 0x1p-8f);
    const std::vector<float> rounded = RoundTrip(WeightFormat::kInt8, weights);
    for (size_t i = 0; i < weights.size(); ++i) {
      // If steps are shorter, the largest is clipped by up to 127 * 2^-9 of one.
      EXPECT_LE(std::abs(rounded[i] - weights[i]), step * 0.5f) << seed;
    }
  }
}

TEST(QuantizeTest, ValuesThatFitAreExact) {
  for (const WeightFormat format : kIntegers) {
    const int least = format == WeightFormat::kInt8 ? -127 : -8;
    const int most = format == WeightFormat::kInt8 ? 127 : 7;
    for (const float scale : {1.0f, 0.375f, -0x1p-20f, 0x1p100f}) {
      std::vector<float> weights(kQuantizationGroup);
      for (int i = 0; i < kQuantizationGroup; ++i) {
        weights[i] = static_cast<float>(least + i * (most - least) / 31) * scale;
      }
      EXPECT_EQ(RoundTrip(format, weights), weights);
    }
  }
}

// A checkpoint of integers keeps its stored values when it is loaded and packed.
TEST(QuantizeTest, RoundedValuesAreRoundedToThemselves) {
  for (const WeightFormat format : kIntegers) {
    for (unsigned seed = 0; seed < 300; ++seed) {
      const std::vector<float> weights = Normal(seed % kQuantizationGroup + 1, seed);
      const std::vector<float> rounded = RoundTrip(format, weights);
      EXPECT_EQ(RoundTrip(format, rounded), rounded) << seed;
    }
  }
}

// For any rounding of the stored values, even if none is the smallest integer.
TEST(QuantizeTest, IntegersOfFourBitsAreExactUnderAnyScale) {
  std::mt19937 generator(1);
  for (int i = 0; i < 2000; ++i) {
    const float scale = FromBFloat16(ToBFloat16(Normal(1, static_cast<unsigned>(i))[0]));
    const int most = static_cast<int>(generator() % 8);
    std::uniform_int_distribution<int> integer(-most - static_cast<int>(generator() % 2), most);
    std::vector<float> weights(generator() % kQuantizationGroup + 1);
    for (float& weight : weights) weight = static_cast<float>(integer(generator)) * scale;
    EXPECT_EQ(RoundTrip(WeightFormat::kInt4, weights), weights) << i;
  }
}

// Loading multiplies weights of MLA's queries by a factor.
TEST(QuantizeTest, IntegersOfFourBitsOutliveAFactor) {
  std::mt19937 generator(2);
  std::uniform_int_distribution<int> integer(-6, 5);
  for (int i = 0; i < 2000; ++i) {
    const float scale = FromBFloat16(ToBFloat16(Normal(1, static_cast<unsigned>(i))[0]));
    const float factor = 1 + static_cast<float>(generator() % 1000) / 500;
    std::vector<float> weights(kQuantizationGroup), scaled(kQuantizationGroup);
    for (int k = 0; k < kQuantizationGroup; ++k) {
      weights[k] = static_cast<float>(integer(generator)) * scale;
      scaled[k] = weights[k] * factor;
    }
    const std::vector<float> rounded = RoundTrip(WeightFormat::kInt4, scaled);
    for (int k = 0; k < kQuantizationGroup; ++k) {
      EXPECT_NEAR(rounded[k], scaled[k], 0x1p-8f * std::abs(scaled[k])) << i;
    }
  }
}

// Four bits: never worse than steps of the largest weight / 8, and better in total.
TEST(QuantizeTest, TheScaleIsTheBestThatWasTried) {
  double best = 0, plain = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    const std::vector<float> weights = Normal(kQuantizationGroup, seed);
    const float largest = *std::max_element(
        weights.begin(), weights.end(), [](float a, float b) { return std::abs(a) < std::abs(b); });
    const float scale = FromBFloat16(ToBFloat16(largest / -8));
    std::vector<float> nearest(weights.size());
    for (size_t i = 0; i < weights.size(); ++i) {
      nearest[i] = std::clamp(std::nearbyint(weights[i] / scale), -8.0f, 7.0f) * scale;
    }
    const double error = SquaredError(RoundTrip(WeightFormat::kInt4, weights), weights);
    EXPECT_LE(error, SquaredError(nearest, weights)) << seed;
    best += error;
    plain += SquaredError(nearest, weights);
  }
  EXPECT_LT(best, 0.95 * plain);
}

TEST(QuantizeTest, ZerosAndWhatIsTooSmallForAScaleAreZeros) {
  for (const WeightFormat format : kIntegers) {
    for (const float value : {0.0f, 1e-45f, -1e-44f}) {
      const std::vector<float> weights(5, value);
      EXPECT_EQ(RoundTrip(format, weights), std::vector<float>(5, 0.0f)) << value;
    }
  }
}

TEST(QuantizeTest, TheLargestNumbersStayFinite) {
  for (const WeightFormat format : kIntegers) {
    std::vector<float> weights(kQuantizationGroup, 1.0f);
    weights[7] = std::numeric_limits<float>::max();
    weights[8] = -std::numeric_limits<float>::max();
    const std::vector<float> rounded = RoundTrip(format, weights);
    for (const float value : rounded) EXPECT_TRUE(std::isfinite(value));
    // Half a step, and for the largest 4-bit number the error of clipping.
    EXPECT_NEAR(rounded[7] / weights[7], 1, 0.15);
    EXPECT_NEAR(rounded[8] / weights[8], 1, 0.15);
  }
}

// Each weight lies where the kernels read it, and does not overwrite others.
TEST(PackedFormatTest, UnpacksWhatWasPacked) {
  for (const auto& [name, format] : Names<WeightFormat>()) {
    SCOPED_TRACE(name);
    const PackedFormat packed = Packed(format);
    std::vector<std::byte> unit(packed.panel_bytes());
    std::vector<std::vector<float>> columns(kPanel);
    for (int64_t column = 0; column < kPanel; ++column) {
      columns[column] = Normal(packed.inputs, static_cast<unsigned>(column));
      PackUnit(format, columns[column], column, unit.data());
    }
    for (int64_t column = 0; column < kPanel; ++column) {
      std::vector<std::byte> alone(packed.panel_bytes());
      PackUnit(format, columns[column], 0, alone.data());
      std::vector<float> expected(packed.inputs), unpacked(packed.inputs);
      UnpackUnit(format, alone.data(), 0, expected);
      UnpackUnit(format, unit.data(), column, unpacked);
      EXPECT_EQ(unpacked, expected);
      if (IsInteger(format)) {
        EXPECT_EQ(unpacked, RoundTrip(format, columns[column]));
      }
    }
  }
}

TEST(PackedFormatTest, BytesAreThoseOfTheFormat) {
  for (const auto& [name, format] : Names<WeightFormat>()) {
    const PackedFormat packed = Packed(format);
    EXPECT_EQ(packed.panel_bytes(), WeightBytes(format, packed.inputs, kPanel)) << name;
  }
  EXPECT_EQ(WeightBytes(WeightFormat::kFloat32, 7, 3), 84);
  EXPECT_EQ(WeightBytes(WeightFormat::kBFloat16, 7, 3), 42);
  EXPECT_EQ(WeightBytes(WeightFormat::kInt8, 33, 3), 3 * 2 * 34);
  EXPECT_EQ(WeightBytes(WeightFormat::kInt4, 64, 3), 3 * 2 * 18);
}

}  // namespace
}  // namespace triptych::kernels::quantization_test
