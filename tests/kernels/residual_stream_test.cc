#include "engine/kernels/residual_stream.h"

#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <vector>

#include "tests/support/elements.h"
#include "tests/support/instruction_sets.h"

namespace triptych {
namespace {

constexpr float kGuard = 12345.0f;

// Normal numbers.
template <typename Row>
std::vector<Row> Table(int64_t count) {
  std::mt19937_64 generator(1);
  std::normal_distribution<float> normal;
  std::vector<Row> table(count);
  for (Row& element : table) {
    const float value = normal(generator);
    if constexpr (sizeof(Row) == sizeof(float)) {
      element = value;
    } else {
      element = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
    }
  }
  return table;
}

using ResidualStreamTest = InstructionSetTest;

// Copies and single additions are exact: the same bits in every batch.
template <typename Row>
void CheckRows() {
  ThreadPool pool(3);
  const std::vector<int64_t> indices = {4, 0, 10, 4, 9};
  for (const int64_t width : {1, 3, 8, 15, 16, 17, 70, 20000}) {
    const std::vector<Row> table = Table<Row>(11 * width);
    const auto size = static_cast<int64_t>(indices.size()) * width;
    std::vector<float> copied(size + 1, kGuard), added(size + 1, 0.75f);
    CopyRows(table.data(), indices.data(), std::ssize(indices), width, copied.data(), pool);
    AddRows(table.data(), indices.data(), std::ssize(indices), width, added.data(), pool);
    EXPECT_EQ(copied.back(), kGuard);
    EXPECT_EQ(added.back(), 0.75f);
    for (int64_t i = 0; i < size; ++i) {
      const float row = ToFloat(table[indices[i / width] * width + i % width]);
      ASSERT_EQ(copied[i], row);
      ASSERT_EQ(added[i], 0.75f + row);
    }
  }
}

TEST_P(ResidualStreamTest, RowsOfAFloat32Table) { CheckRows<float>(); }
TEST_P(ResidualStreamTest, RowsOfABFloat16Table) { CheckRows<uint16_t>(); }

TEST_P(ResidualStreamTest, Add) {
  ThreadPool pool(3);
  for (const int64_t count : {0, 1, 5, 16, 33, 200001}) {
    const std::vector<float> x = Table<float>(count);
    std::vector<float> y(count + 1, 0.75f);
    Add(x.data(), count, y.data(), pool);
    EXPECT_EQ(y.back(), 0.75f);
    for (int64_t i = 0; i < count; ++i) ASSERT_EQ(y[i], 0.75f + x[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, ResidualStreamTest, testing::ValuesIn(InstructionSets()),
                         InstructionSetName);

}  // namespace
}  // namespace triptych
