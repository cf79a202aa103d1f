#include "engine/kv_cache/geometry.h"

#include <gtest/gtest.h>

#include "engine/base/error.h"

namespace triptych::geometry_test {
namespace {

const CacheGeometry kGeometry{
    .block_positions = 16, .row_bytes = {100, 60, 40}, .mha_bytes_per_position = 1536};

TEST(CacheGeometryTest, SumsLayersOfDifferentWidth) {
  EXPECT_EQ(kGeometry.BytesPerPosition(), 200);
  EXPECT_EQ(kGeometry.BlockBytes(), 3200);
}

TEST(CacheGeometryTest, ACacheHoldsWholeBlocksAndAtLeastOne) {
  EXPECT_EQ(BlocksIn(kGeometry, 3200), 1);
  EXPECT_EQ(BlocksIn(kGeometry, 6399), 1);
  EXPECT_EQ(BlocksIn(kGeometry, 6400), 2);
  for (const int64_t bytes : {int64_t{0}, int64_t{3199}, int64_t{3200} << 31}) {
    EXPECT_THROW(BlocksIn(kGeometry, bytes), LoadError) << bytes;
  }
}

TEST(CacheGeometryTest, ReportsUsedAndReservedApart) {
  const KvCacheUsage usage = kGeometry.Usage(17, 0, 2, 1, 5);
  EXPECT_EQ(usage.positions, 17);
  EXPECT_EQ(usage.bytes_per_position, 200);
  EXPECT_EQ(usage.used_bytes, 3400);
  EXPECT_EQ(usage.allocated_bytes, 6400);
  EXPECT_EQ(usage.peak_allocated_bytes, 16000);
  EXPECT_EQ(usage.mha_used_bytes, 17 * 1536);
}

TEST(CacheGeometryTest, CountsBeyond32Bits) {
  const CacheGeometry wide{.block_positions = 16,
                           .row_bytes = std::vector<int64_t>(128, 65536),
                           .mha_bytes_per_position = int64_t{1} << 24};
  EXPECT_EQ(wide.Usage(1 << 20, 0, 1 << 16, 0, 1 << 16).used_bytes, int64_t{1} << 43);
}

// Full layers 2 and 5 of six, as Gemma 3 has every sixth: one full group and two windowed ones.
const CacheGeometry kWindowed{.block_positions = 4,
                              .row_bytes = std::vector<int64_t>(6, 10),
                              .mha_bytes_per_position = 100,
                              .window = 6,
                              .windowed = {true, true, false, true, true, false}};

TEST(CacheGeometryTest, GroupsLayersOfAKind) {
  const LayerGroups groups = kWindowed.Groups();
  EXPECT_EQ(groups.full, 1);
  EXPECT_EQ(groups.windowed, 2);
  EXPECT_EQ(groups.window, 6);
  EXPECT_EQ(kWindowed.slots(), 2);
  EXPECT_EQ(kWindowed.BlockBytes(), 4 * 20);
  EXPECT_EQ(kWindowed.BytesPerPosition(), 60);
  const int64_t expected[6][2] = {{1, 0}, {1, 1}, {0, 0}, {2, 0}, {2, 1}, {0, 1}};
  for (int64_t layer = 0; layer < 6; ++layer) {
    EXPECT_EQ(kWindowed.GroupOf(layer), expected[layer][0]) << layer;
    EXPECT_EQ(kWindowed.SlotOf(layer), expected[layer][1]) << layer;
  }
  CacheGeometry all = kWindowed;
  all.windowed.assign(6, true);
  EXPECT_EQ(all.Groups().full, 0);
  EXPECT_EQ(all.Groups().windowed, 1);
  EXPECT_EQ(all.GroupOf(5), 0);
  EXPECT_EQ(all.SlotOf(5), 5);
  EXPECT_EQ(kGeometry.Groups().count(), 1);
  EXPECT_EQ(kGeometry.SlotOf(2), 2);
}

TEST(CacheGeometryTest, AWindowBoundsItsBlocks) {
  const LayerGroups groups = kWindowed.Groups();
  // A query at position 9 attends 4 to 9, one at 10 attends 5.
  EXPECT_EQ(groups.Unseen(5, 4), 0);
  EXPECT_EQ(groups.Unseen(8, 4), 0);
  EXPECT_EQ(groups.Unseen(9, 4), 1);
  EXPECT_EQ(groups.Unseen(12, 4), 1);
  EXPECT_EQ(groups.Unseen(13, 4), 2);
  // Any six positions are in at most three blocks.
  EXPECT_EQ(groups.MostWindowBlocks(1, 4), 3);
  EXPECT_EQ(groups.MostBlocks(9, 1, 4), 3 * 3);
  EXPECT_EQ(groups.MostBlocks(400, 1, 4), 100 + 2 * 3);
  EXPECT_EQ(groups.MostBlocks(400, 32, 4), 100 + 2 * 11);
  EXPECT_EQ(LayerGroups{}.MostBlocks(9, 1, 4), 3);
  // 13 positions, of which the windowed groups have given two blocks back.
  const KvCacheUsage usage = kWindowed.Usage(13, 2, 4 + 2 * 2, 0, 12);
  EXPECT_EQ(usage.used_bytes, 13 * 60 - 8 * 40);
  EXPECT_EQ(usage.allocated_bytes, 8 * 80);
  EXPECT_EQ(usage.peak_allocated_bytes, 12 * 80);
}

}  // namespace
}  // namespace triptych::geometry_test
