#include "engine/kernels/norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/support/instruction_sets.h"

namespace triptych::kernels::norm_test {
namespace {

constexpr double kEps = 0.01;
constexpr float kGuard = 12345.0f;

// The definitions in float64: layer norm, or RMS norm if not `centred`.
std::vector<double> Expected(const float* x, int64_t width, const std::vector<float>& weight,
                             const std::vector<float>& bias, bool centred) {
  double mean = 0, variance = 0;
  for (int64_t i = 0; i < width && centred; ++i) mean += x[i] / static_cast<double>(width);
  for (int64_t i = 0; i < width; ++i) {
    variance += (x[i] - mean) * (x[i] - mean) / static_cast<double>(width);
  }
  std::vector<double> y(width);
  for (int64_t i = 0; i < width; ++i) {
    y[i] = (x[i] - mean) / std::sqrt(variance + kEps) * weight[i] + (bias.empty() ? 0 : bias[i]);
  }
  return y;
}

// Rows of x with a gap of other elements between them.
struct Rows {
  static constexpr int64_t kGap = 3;

  Rows(int64_t rows_in, int64_t width_in) : rows(rows_in), width(width_in), weight(width_in) {
    std::mt19937_64 generator(1);
    std::normal_distribution<float> normal(0.5f);
    x.assign(rows * stride(), kGuard);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < width; ++i) x[row * stride() + i] = normal(generator);
    }
    for (float& value : weight) value = normal(generator);
    bias = weight;
    for (float& value : bias) value = normal(generator);
  }

  int64_t stride() const { return width + kGap; }

  int64_t rows, width;
  std::vector<float> weight, bias;
  std::vector<float> x;
};

using NormTest = InstructionSetTest;

TEST_P(NormTest, EqualsTheDefinition) {
  KernelContext context(3);
  for (const int64_t width : {1, 2, 3, 7, 8, 15, 16, 17, 31, 64, 203, 1000}) {
    const Rows in(5, width);
    const int64_t stride = width + 2;
    const auto check = [&](const std::vector<float>& bias, bool centred, const auto& normalize) {
      std::vector<float> y(in.rows * stride, kGuard), in_place = in.x;
      normalize(in.x.data(), y.data(), stride);
      normalize(in_place.data(), in_place.data(), in.stride());
      for (int64_t row = 0; row < in.rows; ++row) {
        const std::vector<double> expected =
            Expected(&in.x[row * in.stride()], width, in.weight, bias, centred);
        for (int64_t i = 0; i < stride; ++i) {
          if (i < width) {
            EXPECT_NEAR(y[row * stride + i], expected[i], 2e-5) << "width " << width;
            EXPECT_EQ(in_place[row * in.stride() + i], y[row * stride + i]);
          } else {
            EXPECT_EQ(y[row * stride + i], kGuard);
            EXPECT_EQ(in_place[row * in.stride() + i], kGuard);
          }
        }
      }
    };
    check({}, /*centred=*/false, [&](const float* x, float* y, int64_t y_stride) {
      RmsNormRows(x, in.stride(), in.rows, width, in.weight.data(), kEps, y, y_stride, context);
    });
    check({}, /*centred=*/true, [&](const float* x, float* y, int64_t y_stride) {
      LayerNormRows(x, in.stride(), in.rows, width, in.weight.data(), nullptr, kEps, y, y_stride,
                    context);
    });
    check(in.bias, /*centred=*/true, [&](const float* x, float* y, int64_t y_stride) {
      LayerNormRows(x, in.stride(), in.rows, width, in.weight.data(), in.bias.data(), kEps, y,
                    y_stride, context);
    });
  }
}

// Far from zero, the mean of squares would lose the variance.
TEST_P(NormTest, LayerNormOfValuesFarFromZero) {
  KernelContext context(1);
  constexpr int64_t kWidth = 64;
  Rows in(1, kWidth);
  for (float& value : in.x) value += 4096;
  std::vector<float> y(kWidth);
  LayerNormRows(in.x.data(), kWidth, 1, kWidth, in.weight.data(), nullptr, kEps, y.data(), kWidth,
                context);
  const std::vector<double> expected = Expected(in.x.data(), kWidth, in.weight, {}, true);
  for (int64_t i = 0; i < kWidth; ++i) EXPECT_NEAR(y[i], expected[i], 5e-3);
}

// In any batch, and on any number of threads.
TEST_P(NormTest, ARowIsTheSameBitsInEveryBatch) {
  constexpr int64_t kWidth = 203, kRows = 400;
  const Rows in(kRows, kWidth);
  KernelContext one(1), three(3);
  std::vector<float> rms(kRows * kWidth), layer(kRows * kWidth), alone(kWidth);
  RmsNormRows(in.x.data(), in.stride(), kRows, kWidth, in.weight.data(), kEps, rms.data(), kWidth,
              three);
  LayerNormRows(in.x.data(), in.stride(), kRows, kWidth, in.weight.data(), in.bias.data(), kEps,
                layer.data(), kWidth, three);
  for (int64_t row = 0; row < kRows; ++row) {
    // At another alignment.
    std::vector<float> x(kWidth + 1);
    std::copy_n(&in.x[row * in.stride()], kWidth, x.begin() + 1);
    RmsNormRows(&x[1], kWidth, 1, kWidth, in.weight.data(), kEps, alone.data(), kWidth, one);
    for (int64_t i = 0; i < kWidth; ++i) ASSERT_EQ(alone[i], rms[row * kWidth + i]);
    LayerNormRows(&x[1], kWidth, 1, kWidth, in.weight.data(), in.bias.data(), kEps, alone.data(),
                  kWidth, one);
    for (int64_t i = 0; i < kWidth; ++i) ASSERT_EQ(alone[i], layer[row * kWidth + i]);
  }
}

// Heads are adjacent in a row; the elements after them do not change.
TEST_P(NormTest, HeadsAreRowsInPlace) {
  constexpr int64_t kRows = 5, kHeads = 3, kGap = 2;
  KernelContext context(3);
  for (const int64_t width : {1, 16, 37}) {
    const Rows in(kRows * kHeads, width);
    const int64_t stride = kHeads * width + kGap;
    std::vector<float> heads(kRows * stride, kGuard), expected = heads;
    for (int64_t i = 0; i < kRows * kHeads; ++i) {
      const int64_t at = i / kHeads * stride + i % kHeads * width;
      std::copy_n(&in.x[i * in.stride()], width, &heads[at]);
      RmsNormRows(&in.x[i * in.stride()], width, 1, width, in.weight.data(), kEps, &expected[at],
                  width, context);
    }
    RmsNormHeads(heads.data(), stride, kRows, kHeads, width, in.weight.data(), kEps, context);
    EXPECT_EQ(heads, expected);
  }
}

// Norms of the first elements of each head: its inverse in the place of its input, and divided by.
TEST_P(NormTest, InverseNormsAreThoseOfRmsNorm) {
  constexpr int64_t kRows = 5, kHeads = 3, kRest = 4;
  KernelContext context(2);
  for (const int64_t width : {1, 7, 16, 33, 128}) {
    const int64_t whole = width + kRest;
    const Rows in(kRows, kHeads * whole);
    const std::vector<float> ones(width, 1.0f);
    std::vector<float> divided = in.x;
    DivideByNorms(divided.data(), in.stride(), kRows, kHeads, whole, width, kEps, context);
    std::vector<float> packed(kRows * kHeads * width);  // without the rest
    for (int64_t i = 0; i < kRows * kHeads; ++i) {
      const float* const head = &in.x[i / kHeads * in.stride() + i % kHeads * whole];
      std::copy_n(head, width, &packed[i * width]);
      std::vector<float> expected(width);
      RmsNormRows(head, whole, 1, width, ones.data(), kEps, expected.data(), width, context);
      const float* const actual = &divided[i / kHeads * in.stride() + i % kHeads * whole];
      EXPECT_EQ(std::vector<float>(actual, actual + width), expected);
      EXPECT_FLOAT_EQ(actual[width] * head[0], head[width] * expected[0]);
    }
    const std::vector<float> before = packed;
    InverseNorms(packed.data(), kHeads * width, kRows, kHeads, width, kEps, packed.data(),
                 kHeads * width, context);
    for (int64_t i = 0; i < kRows * kHeads; ++i) {
      const float inverse = packed[i / kHeads * kHeads * width + i % kHeads];
      const float* const actual = &divided[i / kHeads * in.stride() + i % kHeads * whole];
      EXPECT_EQ(before[i * width] * inverse, actual[0]);
    }
  }
}

TEST_P(NormTest, NanStaysInItsRow) {
  KernelContext context(1);
  constexpr int64_t kWidth = 37;
  Rows in(3, kWidth);
  in.x[in.stride() + 36] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> rms(3 * kWidth), layer(3 * kWidth);
  RmsNormRows(in.x.data(), in.stride(), 3, kWidth, in.weight.data(), kEps, rms.data(), kWidth,
              context);
  LayerNormRows(in.x.data(), in.stride(), 3, kWidth, in.weight.data(), nullptr, kEps, layer.data(),
                kWidth, context);
  for (int64_t i = 0; i < 3 * kWidth; ++i) {
    EXPECT_EQ(std::isnan(rms[i]), i / kWidth == 1);
    EXPECT_EQ(std::isnan(layer[i]), i / kWidth == 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, NormTest, testing::ValuesIn(InstructionSets()),
                         InstructionSetName);

}  // namespace
}  // namespace triptych::kernels::norm_test
