#include "engine/kv_cache/block_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace triptych::block_table_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(BlockTableTest, HoldsJustEnoughBlocks) {
  BlockPool pool(8);
  BlockTable table(pool, 4);
  for (int64_t positions = 0; positions <= 32; ++positions) {
    ASSERT_TRUE(table.Grow(positions));
    EXPECT_EQ(table.size(), (positions + 3) / 4) << positions;
    EXPECT_EQ(pool.allocated(), table.size());
  }
}

TEST(BlockTableTest, GrowsAtTheEndAndNeverShrinks) {
  BlockPool pool(8);
  BlockTable table(pool, 4);
  ASSERT_TRUE(table.Grow(5));
  ASSERT_TRUE(table.Grow(9));
  ASSERT_TRUE(table.Grow(1));
  EXPECT_THAT(table.blocks(), ElementsAre(0, 1, 2));
}

TEST(BlockTableTest, ChangesNothingWhenThePoolHasTooFew) {
  BlockPool pool(3);
  BlockTable other(pool, 4);
  BlockTable table(pool, 4);
  ASSERT_TRUE(other.Grow(4));
  ASSERT_TRUE(table.Grow(4));
  EXPECT_FALSE(table.Grow(12));
  EXPECT_EQ(table.size(), 1);
  EXPECT_EQ(table.peak_size(), 1);
  EXPECT_EQ(pool.free(), 1);
  EXPECT_TRUE(table.Grow(8));
}

TEST(BlockTableTest, KeepsItsPeakAfterRelease) {
  BlockPool pool(4);
  BlockTable table(pool, 2);
  ASSERT_TRUE(table.Grow(6));
  table.Release();
  EXPECT_THAT(table.blocks(), IsEmpty());
  EXPECT_EQ(pool.allocated(), 0);
  EXPECT_EQ(table.peak_size(), 3);
  table.Release();
  ASSERT_TRUE(table.Grow(2));
  EXPECT_EQ(table.size(), 1);
  EXPECT_EQ(table.peak_size(), 3);
}

TEST(BlockTableTest, GivesItsBlocksBackWhenItDies) {
  BlockPool pool(4);
  {
    BlockTable table(pool, 2);
    ASSERT_TRUE(table.Grow(8));
    EXPECT_EQ(pool.free(), 0);
  }
  EXPECT_EQ(pool.free(), 4);
}

}  // namespace
}  // namespace triptych::block_table_test
