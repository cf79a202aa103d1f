// Tests of block maps: the places of sequences' blocks in a pool.
#include "engine/serving/block_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "engine/serving/engine.h"
#include "tests/support/fake_model.h"
#include "tests/support/recording_sink.h"
#include "tests/support/tokenizer.h"

namespace triptych::serving::block_map_test {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

std::vector<BlockMap::Cell> Cells(const BlockMap& map) {
  std::vector<BlockMap::Cell> cells;
  for (const auto& [count, cell] : map.runs) cells.insert(cells.end(), count, cell);
  return cells;
}

int64_t Sum(const BlockMap& map, int32_t BlockMap::Cell::*figure) {
  const std::vector<BlockMap::Cell> cells = Cells(map);
  return std::accumulate(
      cells.begin(), cells.end(), int64_t{0},
      [&](int64_t sum, const BlockMap::Cell& cell) { return sum + cell.*figure; });
}

TEST(BlockMapTest, SaysOfEachBlockWhoseItIs) {
  BlockPool pool(10);
  pool.OnUnregistered([](int32_t) {});
  std::vector<int32_t> kept;
  ASSERT_TRUE(pool.Allocate(1, kept));  // 0
  pool.Register(0, /*keep=*/true);
  BlockTable first(pool, 1), second(pool, 1);
  ASSERT_TRUE(first.Grow(3));  // 1, 2, 3
  second.Share(1);
  ASSERT_TRUE(second.Grow(2));  // 4
  BlockTable stranger(pool, 1);
  ASSERT_TRUE(stranger.Grow(1));  // 5
  pool.Release(kept);

  BlockMap map;
  map.Draw(pool, std::vector<const BlockTable*>{&first, &second});
  EXPECT_EQ(map.cell_blocks, 1);
  EXPECT_THAT(Cells(map), ElementsAre(BlockMap::Cell{.holder = 0, .evictable = 1},
                                      BlockMap::Cell{.holder = 1, .allocated = 1, .shared = 1},
                                      BlockMap::Cell{.holder = 1, .allocated = 1},
                                      BlockMap::Cell{.holder = 1, .allocated = 1},
                                      BlockMap::Cell{.holder = 2, .allocated = 1},
                                      BlockMap::Cell{.holder = 0, .allocated = 1}, BlockMap::Cell{},
                                      BlockMap::Cell{}, BlockMap::Cell{}, BlockMap::Cell{}));
  EXPECT_THAT(map.runs, SizeIs(6)) << "equal cells are one run";
}

TEST(BlockMapTest, IsBoundedHoweverLargeThePool) {
  constexpr int64_t kBlocks = 2 * BlockMap::kMaxCells + 102;  // four per cell, two in the last
  BlockPool pool(kBlocks);
  BlockTable first(pool, 1), second(pool, 1), third(pool, 1);
  ASSERT_TRUE(first.Grow(1));   // 0
  ASSERT_TRUE(second.Grow(4));  // 1 to 4: most of cell 0
  ASSERT_TRUE(third.Grow(1));   // 5: in cell 1, as many as the second
  BlockMap map;
  map.Draw(pool, std::vector<const BlockTable*>{&first, &second, &third});
  EXPECT_EQ(map.cell_blocks, 4);
  const std::vector<BlockMap::Cell> cells = Cells(map);
  ASSERT_THAT(cells, SizeIs(1050));
  EXPECT_EQ(cells[0], (BlockMap::Cell{.holder = 2, .allocated = 4}));
  EXPECT_EQ(cells[1], (BlockMap::Cell{.holder = 2, .allocated = 2})) << "of equals the first";
  EXPECT_EQ(cells[2], BlockMap::Cell{});

  BlockTable rest(pool, 1);
  ASSERT_TRUE(rest.Grow(pool.available()));
  BlockMap full;
  full.Draw(pool, std::vector<const BlockTable*>{&rest});
  EXPECT_EQ(Cells(full).back(), (BlockMap::Cell{.holder = 1, .allocated = 2}));
}

TEST(BlockMapTest, AnEmptyPoolHasNoCells) {
  const BlockPool pool(0);
  BlockMap map;
  map.Draw(pool, {});
  EXPECT_THAT(map.runs, SizeIs(0));
}

TEST(BlockMapTest, AnEnginesMapAgreesWithItsStatistics) {
  constexpr int kRunning = BlockMap::kMaxHolders + 10;
  const FakeModel::Shape shape = {.blocks = 5000};
  Engine engine(std::make_unique<FakeModel>(shape), TestTokenizer(),
                {.max_batch_tokens = 100'000, .max_running = kRunning});
  const auto sink = std::make_shared<RecordingSink>();
  for (int i = 0; i < kRunning + 5; ++i) {  // five wait
    Request request;
    request.id = std::to_string(i);
    request.number = 100 + i;
    request.prompt.assign(11, i % 2);  // two full blocks, shared by half of them
    request.prompt.push_back(i % 250);
    request.max_new_tokens = 50;
    request.ignore_eos = true;
    engine.Submit(request, sink);
  }
  while (engine.Stats().running < kRunning) ASSERT_TRUE(engine.Step());

  const BlockMap map = engine.MapBlocks();
  const KvCacheStats stats = engine.Stats();
  ASSERT_EQ(stats.running, kRunning);
  ASSERT_GT(stats.shared_bytes, 0);
  EXPECT_EQ(Sum(map, &BlockMap::Cell::allocated) * stats.block_bytes, stats.allocated_bytes);
  EXPECT_EQ(Sum(map, &BlockMap::Cell::shared) * stats.block_bytes, stats.shared_bytes);
  EXPECT_EQ(Sum(map, &BlockMap::Cell::evictable), stats.evictable_blocks);
  ASSERT_THAT(map.holders, SizeIs(BlockMap::kMaxHolders));
  EXPECT_EQ(map.holders[0].id, "0");
  EXPECT_EQ(map.holders[7].order, 8u);
  EXPECT_GT(map.holders[7].kv_cache.allocated_bytes, 0);
}

}  // namespace
}  // namespace triptych::serving::block_map_test
