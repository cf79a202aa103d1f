#include "engine/kernels/rotation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "tests/support/instruction_sets.h"

namespace triptych::kernels::rotation_test {
namespace {

constexpr int64_t kPositions = 300;

double Angle(int64_t position, int64_t dim, int64_t pair) {
  const double exponent = -2.0 * static_cast<double>(pair) / static_cast<double>(dim);
  return static_cast<double>(position) * std::pow(100.0, exponent);
}

// [positions, 2, dim / 2]
std::vector<float> Table(int64_t dim) {
  std::vector<float> table;
  for (int64_t p = 0; p < kPositions; ++p) {
    for (int64_t i = 0; i < dim / 2; ++i) {
      table.push_back(static_cast<float>(std::cos(Angle(p, dim, i))));
    }
    for (int64_t i = 0; i < dim / 2; ++i) {
      table.push_back(static_cast<float>(std::sin(Angle(p, dim, i))));
    }
  }
  return table;
}

std::vector<float> Inputs(int64_t count) {
  std::mt19937_64 generator(1);
  std::normal_distribution<float> normal;
  std::vector<float> x(count);
  for (float& value : x) value = normal(generator);
  return x;
}

using RotationTest = InstructionSetTest;

// The rotated part of a head lies between other elements, which do not change.
TEST_P(RotationTest, TurnsPairsAndNothingElse) {
  KernelContext context(3);
  constexpr int64_t kRows = 6, kHeads = 3, kBefore = 5, kAfter = 2;
  const std::vector<int64_t> positions = {0, 299, 7, 7, 1, 150};
  for (const int64_t dim : {2, 4, 6, 10, 14, 16, 18, 32, 64, 70}) {
    const std::vector<float> table = Table(dim);
    const RotatedHeads where{.heads = kHeads,
                             .dim = dim,
                             .head_stride = kBefore + dim + kAfter,
                             .row_stride = kHeads * (kBefore + dim + kAfter) + 1};
    const std::vector<float> x = Inputs(kRows * where.row_stride);
    std::vector<float> y = x;
    RotateHeads(table.data(), positions.data(), kRows, where, y.data() + kBefore, context);

    std::vector<double> expected(x.begin(), x.end());
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t head = 0; head < kHeads; ++head) {
        for (int64_t i = 0; i < dim; i += 2) {
          const int64_t at = row * where.row_stride + head * where.head_stride + kBefore + i;
          const double angle = Angle(positions[row], dim, i / 2);
          expected[at] = x[at] * std::cos(angle) - x[at + 1] * std::sin(angle);
          expected[at + 1] = x[at] * std::sin(angle) + x[at + 1] * std::cos(angle);
        }
      }
    }
    for (size_t i = 0; i < y.size(); ++i) {
      ASSERT_NEAR(y[i], expected[i], expected[i] == x[i] ? 0 : 2e-6)
          << "dim " << dim << " at " << i;
    }
  }
}

// At any position of the pair, on any number of threads.
TEST_P(RotationTest, APairIsTheSameBitsEverywhere) {
  KernelContext one(1), three(3);
  constexpr int64_t kDim = 38, kRows = 4000;  // enough work for several threads
  const std::vector<float> table = Table(kDim), x = Inputs(kRows * kDim);
  std::vector<int64_t> positions(kRows);
  for (int64_t row = 0; row < kRows; ++row) positions[row] = row % kPositions;
  std::vector<float> y = x;
  RotateHeads(table.data(), positions.data(), kRows,
              {.heads = 1, .dim = kDim, .head_stride = 0, .row_stride = kDim}, y.data(), three);
  for (int64_t row = 0; row < kRows; ++row) {
    const float* cosines = &table[positions[row] * kDim];
    for (int64_t i = 0; i < kDim; i += 2) {
      const float alone[] = {cosines[i / 2], cosines[kDim / 2 + i / 2]};
      float pair[] = {x[row * kDim + i], x[row * kDim + i + 1]};
      const int64_t first = 0;
      RotateHeads(alone, &first, 1, {.heads = 1, .dim = 2, .head_stride = 0, .row_stride = 0}, pair,
                  one);
      ASSERT_EQ(pair[0], y[row * kDim + i]);
      ASSERT_EQ(pair[1], y[row * kDim + i + 1]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, RotationTest, testing::ValuesIn(InstructionSets()),
                         InstructionSetName);

}  // namespace
}  // namespace triptych::kernels::rotation_test
