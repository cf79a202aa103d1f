#include "engine/kernels/activation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <random>
#include <vector>

#include "tests/support/instruction_sets.h"

namespace triptych::kernels::activation_test {
namespace {

double Silu(double g) { return g / (1 + std::exp(-g)); }
double GeluTanhOf(double g) {
  const double scale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // sqrt(2 / pi)
  return g / 2 * (1 + std::tanh(scale * (g + 0.044715 * g * g * g)));
}
double GeluOf(double g) { return g / 2 * (1 + std::erf(g / std::numbers::sqrt2)); }

// A few roundings of a result of this size, and an absolute part for subnormal numbers.
double Tolerance(double expected) { return std::abs(expected) * 1e-6 + 1e-35; }

// Inputs from far below to far above the range in which the functions saturate.
std::vector<float> Inputs(int64_t count) {
  std::mt19937_64 generator(1);
  std::normal_distribution<float> normal;
  std::vector<float> x(count);
  for (float& value : x) value = normal(generator);
  for (int64_t i = 0; i < count; i += 7) x[i] *= 30;
  const std::vector<float> extremes = {0.0f, -0.0f, 1e4f, -1e4f, 3e38f, -3e38f, 88.5f, -88.5f};
  for (int64_t i = 0; i < std::min(count, std::ssize(extremes)); ++i) x[i] = extremes[i];
  return x;
}

using ActivationTest = InstructionSetTest;

TEST_P(ActivationTest, Softcap) {
  KernelContext context(3);
  for (const float cap : {0.5f, 30.0f}) {
    for (const int64_t count : {1, 17, 203, 4096, 9001}) {
      const std::vector<float> x = Inputs(count);
      std::vector<float> y = x;
      y.push_back(12345.0f);
      Softcap(y.data(), count, cap, context);
      EXPECT_EQ(y.back(), 12345.0f);
      for (int64_t i = 0; i < count; ++i) {
        const double expected = cap * std::tanh(double{x[i]} / cap);
        EXPECT_NEAR(y[i], expected, Tolerance(expected)) << x[i] << " at " << cap;
      }
    }
  }
  float nan = std::numeric_limits<float>::quiet_NaN();
  Softcap(&nan, 1, 30, context);
  EXPECT_TRUE(std::isnan(nan));
}

TEST_P(ActivationTest, GatedSilu) {
  KernelContext context(3);
  for (const int64_t width : {1, 3, 8, 17, 64, 203}) {
    const int64_t rows = 5;
    const std::vector<float> x = Inputs(rows * 2 * width);
    std::vector<float> y(rows * width + 1, 12345.0f);
    GatedSilu(x.data(), rows, width, y.data(), context);
    EXPECT_EQ(y.back(), 12345.0f);
    for (int64_t i = 0; i < rows * width; ++i) {
      const float* gate = &x[i / width * 2 * width + i % width];
      const double expected = Silu(gate[0]) * gate[width];
      if (std::abs(expected) > std::numeric_limits<float>::max()) continue;
      // The second factor multiplies the first factor's error.
      const double tolerance =
          std::abs(gate[width]) * Tolerance(Silu(gate[0])) + Tolerance(expected);
      EXPECT_NEAR(y[i], expected, tolerance) << gate[0];
    }
  }
}

TEST_P(ActivationTest, GatedGeluTanh) {
  KernelContext context(3);
  for (const int64_t width : {1, 3, 8, 17, 64, 203}) {
    const int64_t rows = 5;
    const std::vector<float> x = Inputs(rows * 2 * width);
    std::vector<float> y(rows * width + 1, 12345.0f), activated;
    GatedGeluTanh(x.data(), rows, width, y.data(), context);
    EXPECT_EQ(y.back(), 12345.0f);
    for (int64_t row = 0; row < rows; ++row) {
      activated.assign(&x[row * 2 * width], &x[row * 2 * width] + width);
      GeluTanh(activated.data(), 1, width, context);
      for (int64_t i = 0; i < width; ++i) {
        EXPECT_EQ(y[row * width + i], activated[i] * x[(row * 2 + 1) * width + i]) << activated[i];
      }
    }
  }
}

TEST_P(ActivationTest, Gelu) {
  KernelContext context(3);
  for (const int64_t width : {1, 3, 8, 17, 64, 203}) {
    const int64_t rows = 5;
    const std::vector<float> x = Inputs(rows * width);
    std::vector<float> tanh = x, exact = x;
    tanh.push_back(12345.0f);
    GeluTanh(tanh.data(), rows, width, context);
    Gelu(exact.data(), rows, width, context);
    EXPECT_EQ(tanh.back(), 12345.0f);
    for (int64_t i = 0; i < rows * width; ++i) {
      // 1 + tanh and 1 + erf cancel: the error is relative to g.
      const double tolerance = 1e-6 * std::min(std::abs(x[i]), 10.0f) + Tolerance(GeluOf(x[i]));
      EXPECT_NEAR(tanh[i], GeluTanhOf(x[i]), tolerance) << x[i];
      EXPECT_NEAR(exact[i], GeluOf(x[i]), tolerance) << x[i];
    }
  }
}

TEST_P(ActivationTest, SquaredRelu) {
  KernelContext context(3);
  for (const int64_t width : {1, 3, 8, 17, 64, 203}) {
    const int64_t rows = 5;
    const std::vector<float> x = Inputs(rows * width);
    std::vector<float> y = x;
    y.push_back(12345.0f);
    SquaredRelu(y.data(), rows, width, context);
    EXPECT_EQ(y.back(), 12345.0f);
    for (int64_t i = 0; i < rows * width; ++i) EXPECT_EQ(y[i], x[i] > 0 ? x[i] * x[i] : 0) << x[i];
  }
}

// At any position of an element, on any number of threads.
TEST_P(ActivationTest, AnElementIsTheSameBitsEverywhere) {
  KernelContext one(1), three(3);
  const int64_t width = 203;
  const std::vector<float> x = Inputs(2 * width);
  const std::vector<float> gelu_in(x.begin(), x.begin() + width);
  std::vector<float> silu(width), gelu = gelu_in, exact = gelu_in, squares = gelu_in;
  GatedSilu(x.data(), 1, width, silu.data(), one);
  GeluTanh(gelu.data(), 1, width, one);
  Gelu(exact.data(), 1, width, one);
  SquaredRelu(squares.data(), 1, width, one);
  for (int64_t i = 0; i < width; ++i) {
    const float pair[] = {x[i], x[width + i]};
    float y = 0, z = x[i], e = x[i], s = x[i];
    GatedSilu(pair, 1, 1, &y, one);
    GeluTanh(&z, 1, 1, one);
    Gelu(&e, 1, 1, one);
    SquaredRelu(&s, 1, 1, one);
    EXPECT_EQ(y, silu[i]);
    EXPECT_EQ(z, gelu[i]);
    EXPECT_EQ(e, exact[i]);
    EXPECT_EQ(s, squares[i]);
  }
  constexpr int64_t kRows = 50;
  std::vector<float> many(kRows * 2 * width), y(kRows * width), z(kRows * width);
  for (int64_t row = 0; row < kRows; ++row) {
    std::copy(x.begin(), x.end(), many.begin() + row * 2 * width);
    std::copy(gelu_in.begin(), gelu_in.end(), z.begin() + row * width);
  }
  std::vector<float> e = z, s = z;
  GatedSilu(many.data(), kRows, width, y.data(), three);
  GeluTanh(z.data(), kRows, width, three);
  Gelu(e.data(), kRows, width, three);
  SquaredRelu(s.data(), kRows, width, three);
  for (int64_t i = 0; i < kRows * width; ++i) {
    ASSERT_EQ(y[i], silu[i % width]);
    ASSERT_EQ(z[i], gelu[i % width]);
    ASSERT_EQ(e[i], exact[i % width]);
    ASSERT_EQ(s[i], squares[i % width]);
  }
}

TEST_P(ActivationTest, NanStaysNan) {
  KernelContext context(1);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t width : {1, 40}) {
    std::vector<float> x(3 * width, nan), y(width);
    GatedSilu(x.data(), 1, width, y.data(), context);
    GeluTanh(x.data(), 1, width, context);
    Gelu(x.data() + width, 1, width, context);
    SquaredRelu(x.data() + 2 * width, 1, width, context);
    for (const float value : y) EXPECT_TRUE(std::isnan(value));
    for (const float value : x) EXPECT_TRUE(std::isnan(value));
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, ActivationTest, testing::ValuesIn(InstructionSets()),
                         InstructionSetName);

}  // namespace
}  // namespace triptych::kernels::activation_test
