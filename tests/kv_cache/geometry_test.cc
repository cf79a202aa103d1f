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
  const KvCacheUsage usage = kGeometry.Usage(17, 2, 1, 5);
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
  EXPECT_EQ(wide.Usage(1 << 20, 1 << 16, 0, 1 << 16).used_bytes, int64_t{1} << 43);
}

}  // namespace
}  // namespace triptych::geometry_test
