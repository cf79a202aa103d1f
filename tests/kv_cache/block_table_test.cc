#include "engine/kv_cache/block_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

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

TEST(BlockTableTest, GrowsAtTheEndAndKeepsWhatItHas) {
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

// One full group and two windowed ones.
constexpr LayerGroups kGroups{.full = 1, .windowed = 2, .window = 5};

TEST(BlockTableTest, WindowedGroupsGiveTheirFirstBlocksBack) {
  BlockPool pool(12);
  BlockTable table(pool, 2, kGroups);
  EXPECT_FALSE(table.Grow(9)) << "three groups of five blocks";
  ASSERT_TRUE(table.Grow(8));
  EXPECT_EQ(table.length(), 4);
  EXPECT_EQ(table.size(), 12);
  table.Drop(3);
  EXPECT_EQ(table.dropped(), 3);
  EXPECT_EQ(table.size(), 6);
  EXPECT_EQ(table.peak_size(), 12);
  EXPECT_EQ(pool.allocated(), 6);
  const int32_t none = BlockTable::kNone;
  EXPECT_THAT(table.blocks(), ElementsAre(0, none, none, 3, none, none, 6, none, none, 9, 10, 11));
  table.Drop(2);
  EXPECT_EQ(table.dropped(), 3);
  ASSERT_TRUE(table.Grow(12));
  EXPECT_EQ(table.size(), 12);
  table.Release();
  EXPECT_EQ(table.size(), 0);
  EXPECT_EQ(table.dropped(), 0);
  EXPECT_EQ(pool.free(), 12);
}

TEST(BlockTableTest, ShrinksAtTheEnd) {
  BlockPool pool(12);
  BlockTable table(pool, 2, kGroups);
  ASSERT_TRUE(table.Grow(8));
  table.Drop(1);
  table.Shrink(7);
  EXPECT_EQ(table.length(), 4) << "position 6 is in the last block";
  table.Shrink(3);
  const int32_t none = BlockTable::kNone;
  EXPECT_THAT(table.blocks(), ElementsAre(0, none, none, 3, 4, 5));
  EXPECT_EQ(table.size(), 4);
  EXPECT_EQ(table.peak_size(), 12);
  EXPECT_EQ(pool.allocated(), 4);
  ASSERT_TRUE(table.Grow(6));
  EXPECT_THAT(table.blocks(), ElementsAre(0, none, none, 3, 4, 5, 6, 7, 8)) << "freed last";
  table.Shrink(8);
  EXPECT_EQ(table.length(), 3);
}

TEST(BlockTableTest, SharesOnlyTheBlocksOfAWindow) {
  BlockPool pool(12);
  pool.OnUnregistered([](int32_t) {});
  BlockTable first(pool, 2, kGroups), second(pool, 2, kGroups);
  ASSERT_TRUE(first.Grow(4));
  const int32_t none = BlockTable::kNone;
  second.Share(std::vector<int32_t>{0, none, none});
  second.Share(std::vector<int32_t>{3, 4, 5});
  EXPECT_EQ(second.dropped(), 1);
  EXPECT_EQ(second.size(), 4);
  EXPECT_EQ(second.shared(), 4);
  EXPECT_EQ(first.shared(), 4);
  EXPECT_EQ(pool.extra_references(), 4);
  EXPECT_EQ(pool.extra_lead_references(), 2);
  first.Drop(2);
  EXPECT_EQ(pool.extra_references(), 2);
  EXPECT_EQ(pool.ref_count(4), 1);
  first.Release();
  EXPECT_EQ(pool.extra_lead_references(), 0);
  EXPECT_EQ(pool.allocated(), 4);
}

}  // namespace
}  // namespace triptych::block_table_test
