#include "engine/kv_cache/block_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace triptych::block_pool_test {
namespace {

using ::testing::ElementsAre;

TEST(BlockPoolTest, CountsWhatIsTaken) {
  BlockPool pool(4);
  EXPECT_EQ(pool.total(), 4);
  EXPECT_EQ(pool.free(), 4);
  std::vector<int32_t> blocks;
  ASSERT_TRUE(pool.Allocate(3, blocks));
  EXPECT_EQ(pool.allocated(), 3);
  EXPECT_EQ(pool.free(), 1);
  pool.Release(blocks);
  EXPECT_EQ(pool.allocated(), 0);
  EXPECT_EQ(pool.peak_allocated(), 3);
}

TEST(BlockPoolTest, TakesAllOrNothing) {
  BlockPool pool(3);
  std::vector<int32_t> blocks;
  ASSERT_TRUE(pool.Allocate(2, blocks));
  const std::vector<int32_t> before = blocks;
  EXPECT_FALSE(pool.Allocate(2, blocks));
  EXPECT_EQ(blocks, before);
  EXPECT_EQ(pool.allocated(), 2);
  EXPECT_EQ(pool.peak_allocated(), 2);
  EXPECT_TRUE(pool.Allocate(1, blocks));
  EXPECT_TRUE(pool.Allocate(0, blocks));
}

TEST(BlockPoolTest, TakesLowestFirstThenLastGivenFirst) {
  BlockPool pool(6);
  std::vector<int32_t> a, b;
  ASSERT_TRUE(pool.Allocate(2, a));
  ASSERT_TRUE(pool.Allocate(2, b));
  EXPECT_THAT(a, ElementsAre(0, 1));
  EXPECT_THAT(b, ElementsAre(2, 3));
  pool.Release(b);
  pool.Release(a);
  std::vector<int32_t> all;
  ASSERT_TRUE(pool.Allocate(6, all));
  EXPECT_THAT(all, ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(BlockPoolTest, EmptyPoolHasNothing) {
  BlockPool pool(0);
  std::vector<int32_t> blocks;
  EXPECT_FALSE(pool.Allocate(1, blocks));
  EXPECT_TRUE(pool.Allocate(0, blocks));
}

TEST(BlockPoolTest, NeverHandsOutABlockTwice) {
  std::mt19937 random(1);
  BlockPool pool(37);
  std::vector<std::vector<int32_t>> held;
  int64_t peak = 0;
  for (int i = 0; i < 5000; ++i) {
    if (random() % 2 == 0 || held.empty()) {
      std::vector<int32_t> blocks;
      if (pool.Allocate(random() % 8, blocks)) held.push_back(blocks);
    } else {
      std::swap(held[random() % held.size()], held.back());
      pool.Release(held.back());
      held.pop_back();
    }
    std::vector<int32_t> all;
    for (const auto& blocks : held) all.insert(all.end(), blocks.begin(), blocks.end());
    std::sort(all.begin(), all.end());
    ASSERT_EQ(std::adjacent_find(all.begin(), all.end()), all.end());
    ASSERT_TRUE(all.empty() || (all.front() >= 0 && all.back() < 37));
    ASSERT_EQ(pool.allocated(), std::ssize(all));
    peak = std::max(peak, std::ssize(all));
    ASSERT_EQ(pool.peak_allocated(), peak);
  }
}

}  // namespace
}  // namespace triptych::block_pool_test
