#include "engine/kernels/residual_stream.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "engine/kernels/elements.h"
#include "tests/support/instruction_sets.h"

namespace triptych::kernels::residual_stream_test {
namespace {

constexpr float kGuard = 12345.0f;

// Normal numbers.
template <typename Element>
std::vector<Element> Table(int64_t count) {
  std::mt19937_64 generator(1);
  std::normal_distribution<float> normal;
  std::vector<Element> table(count);
  for (Element& element : table) element = FromFloat<Element>(normal(generator));
  return table;
}

using ResidualStreamTest = InstructionSetTest;

// Copies and single additions are exact: bit-identical in every batch.
template <typename Element>
void CheckRows(TensorFormat format) {
  KernelContext context(3);
  const std::vector<int64_t> indices = {4, 0, 10, 4, 9};
  for (const int64_t width : {1, 3, 8, 15, 16, 17, 70, 20000}) {
    const std::vector<Element> table = Table<Element>(11 * width);
    const auto size = static_cast<int64_t>(indices.size()) * width;
    std::vector<float> copied(size + 1, kGuard), added(size + 1, 0.75f);
    CopyRows(format, table.data(), indices.data(), std::ssize(indices), width, copied.data(),
             context);
    AddRows(format, table.data(), indices.data(), std::ssize(indices), width, added.data(),
            context);
    EXPECT_EQ(copied.back(), kGuard);
    EXPECT_EQ(added.back(), 0.75f);
    for (int64_t i = 0; i < size; ++i) {
      const float row = ToFloat(table[indices[i / width] * width + i % width]);
      ASSERT_EQ(copied[i], row);
      ASSERT_EQ(added[i], 0.75f + row);
    }
  }
}

TEST_P(ResidualStreamTest, RowsOfAFloat32Table) { CheckRows<float>(TensorFormat::kFloat32); }
TEST_P(ResidualStreamTest, RowsOfABFloat16Table) { CheckRows<uint16_t>(TensorFormat::kBFloat16); }

// A row has the same bits whatever other rows are added to, and on any number of threads.
TEST_P(ResidualStreamTest, AddWeightedRows) {
  const std::vector<int64_t> to = {2, 0, 2, 2, 1};
  const std::vector<float> weights = {0.5f, -1.25f, 3.0f, 1e-3f, 0.0f};
  for (const int64_t width : {1, 3, 16, 63, 64, 65, 130, 20001}) {
    const std::vector<float> x = Table<float>(std::ssize(to) * width);
    const std::vector<float> start(3 * width, 0.75f);
    KernelContext one(1);
    std::vector<float> alone = start;  // row 2, one addition at a time
    for (const int64_t i : {0, 2, 3}) {
      AddWeightedRows(&x[i * width], &to[i], &weights[i], 1, width, alone.data(), one);
    }
    for (const int threads : {1, 3}) {
      KernelContext context(threads);
      std::vector<float> y = start;
      y.push_back(kGuard);
      AddWeightedRows(x.data(), to.data(), weights.data(), std::ssize(to), width, y.data(),
                      context);
      EXPECT_EQ(y.back(), kGuard);
      for (int64_t i = 0; i < width; ++i) {
        const double sum = 0.75 + 0.5 * x[i] + 3.0 * x[2 * width + i] + 1e-3 * x[3 * width + i];
        ASSERT_NEAR(y[2 * width + i], sum, 1e-6 * (1 + std::abs(sum) + 10));
        ASSERT_EQ(y[2 * width + i], alone[2 * width + i]);
        ASSERT_EQ(y[width + i], 0.75f);
      }
    }
  }
}

TEST_P(ResidualStreamTest, Add) {
  KernelContext context(3);
  for (const int64_t count : {0, 1, 5, 16, 33, 200001}) {
    const std::vector<float> x = Table<float>(count);
    std::vector<float> y(count + 1, 0.75f);
    Add(x.data(), count, y.data(), context);
    EXPECT_EQ(y.back(), 0.75f);
    for (int64_t i = 0; i < count; ++i) ASSERT_EQ(y[i], 0.75f + x[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, ResidualStreamTest, testing::ValuesIn(InstructionSets()),
                         InstructionSetName);

}  // namespace
}  // namespace triptych::kernels::residual_stream_test
