#include "engine/kv_cache/prefix_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace triptych::prefix_cache_test {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kBlockPositions = 3;

class PrefixCacheTest : public testing::Test {
 protected:
  int32_t Allocate() {
    std::vector<int32_t> blocks;
    EXPECT_TRUE(pool_.Allocate(1, blocks));
    return blocks.at(0);
  }
  void Release(std::vector<int32_t> blocks) { pool_.Release(blocks); }
  // The block registered after `before`, or -1.
  int32_t Find(PrefixCache::Prefix before, const std::vector<int32_t>& tokens) const {
    const auto found = cache_.Find({.before = before, .tokens = tokens});
    return found ? found->block : -1;
  }

  BlockPool pool_{4};
  PrefixCache cache_{pool_, kBlockPositions};
  const std::vector<int32_t> abc_ = {1, 2, 3}, abd_ = {1, 2, 4};
};

TEST_F(PrefixCacheTest, FindsWhatIsListedByAllThatItsRowsDependOn) {
  const int32_t first = Allocate(), second = Allocate();
  EXPECT_EQ(Find(PrefixCache::kShared, abc_), -1);
  const auto listed = cache_.Register({.tokens = abc_}, first, /*keep=*/true);
  EXPECT_EQ(listed.block, first);
  cache_.Register({.before = listed.id, .tokens = abc_, .prompt_begin = 1, .prompt_end = 3}, second,
                  true);

  EXPECT_EQ(Find(PrefixCache::kShared, abc_), first);
  EXPECT_EQ(Find(PrefixCache::kShared, abd_), -1);
  EXPECT_EQ(Find(listed.id, abc_), -1) << "another path";
  for (const int32_t begin : {0, 1, 2}) {
    for (const int32_t end : {2, 3}) {
      const auto found = cache_.Find(
          {.before = listed.id, .tokens = abc_, .prompt_begin = begin, .prompt_end = end});
      EXPECT_EQ(found.has_value(), begin == 1 && end == 3);
    }
  }
  EXPECT_EQ(Find(cache_.NewRoot(), abc_), -1) << "another root";
}

TEST_F(PrefixCacheTest, KeepsTheFirstOfTwoEqualBlocks) {
  const int32_t first = Allocate(), second = Allocate();
  const auto listed = cache_.Register({.tokens = abc_}, first, true);
  const auto again = cache_.Register({.tokens = abc_}, second, true);
  EXPECT_EQ(again.block, first);
  EXPECT_EQ(again.id, listed.id);
  Release({second});
  EXPECT_EQ(pool_.free(), 3);  // it cannot be found
}

TEST_F(PrefixCacheTest, ReleasedBlocksStayUntilRoomIsNeeded) {
  const int32_t block = Allocate();
  cache_.Register({.tokens = abc_}, block, true);
  Release({block});
  EXPECT_EQ(pool_.evictable(), 1);
  EXPECT_EQ(pool_.allocated(), 0);
  EXPECT_EQ(pool_.available(), 4);
  EXPECT_EQ(Find(PrefixCache::kShared, abc_), block);

  std::vector<int32_t> all;
  ASSERT_TRUE(pool_.Allocate(3, all));
  EXPECT_EQ(Find(PrefixCache::kShared, abc_), block);
  ASSERT_TRUE(pool_.Allocate(1, all));
  EXPECT_EQ(all.back(), block);
  EXPECT_EQ(Find(PrefixCache::kShared, abc_), -1);
  EXPECT_EQ(pool_.evictions(), 1);
}

TEST_F(PrefixCacheTest, AnUnregisteredBlockIsFreeWhenItIsReleased) {
  const int32_t block = Allocate();
  const auto root = cache_.NewRoot();
  cache_.Register({.before = root, .tokens = abc_}, block, /*keep=*/false);
  pool_.AddReference(block);
  Release({block});
  EXPECT_EQ(Find(root, abc_), block);
  Release({block});
  EXPECT_EQ(Find(root, abc_), -1);
  EXPECT_EQ(pool_.free(), 4);
}

TEST_F(PrefixCacheTest, TheLongestUnusedIsEvictedAndAnEndBeforeItsBeginning) {
  const std::vector<std::vector<int32_t>> contents = {{1, 1, 1}, {2, 2, 2}, {3, 3, 3}, {4, 4, 4}};
  std::vector<int32_t> blocks;
  ASSERT_TRUE(pool_.Allocate(4, blocks));
  // Two sequences of two blocks each.
  const auto a = cache_.Register({.tokens = contents[0]}, blocks[0], true);
  const auto a2 = cache_.Register({.before = a.id, .tokens = contents[1]}, blocks[1], true);
  const auto b = cache_.Register({.tokens = contents[2]}, blocks[2], true);
  cache_.Register({.before = b.id, .tokens = contents[3]}, blocks[3], true);
  Release({blocks[0], blocks[1]});
  Release({blocks[2], blocks[3]});
  // The first sequence takes the blocks again, and releases them.
  pool_.AddReference(blocks[0]);
  pool_.AddReference(blocks[1]);
  EXPECT_EQ(pool_.allocated(), 2);
  Release({blocks[0], blocks[1]});

  std::vector<int32_t> evicted;
  while (pool_.Allocate(1, evicted)) {
  }
  EXPECT_THAT(evicted, ElementsAre(blocks[3], blocks[2], blocks[1], blocks[0]));
  EXPECT_EQ(a2.block, blocks[1]);
}

TEST_F(PrefixCacheTest, AnIdIsNeverUsedAgain) {
  const int32_t block = Allocate();
  const auto listed = cache_.Register({.tokens = abc_}, block, true);
  Release({block});
  std::vector<int32_t> all;
  ASSERT_TRUE(pool_.Allocate(4, all));
  // The same block with other tokens: blocks registered after the old ones are not found after it.
  const auto again = cache_.Register({.tokens = abd_}, block, true);
  EXPECT_NE(again.id, listed.id);
}

TEST(RememberingPrefixCacheTest, BlocksAfterEvictedOnesAreFound) {
  BlockPool pool(2);
  PrefixCache cache(pool, kBlockPositions, /*remembered=*/2);
  const std::vector<int32_t> abc = {1, 2, 3};
  // A chain of blocks with equal tokens, in a pool that holds the last two.
  std::vector<PrefixCache::Prefix> ids = {PrefixCache::kShared};
  const auto append = [&] {
    std::vector<int32_t> block;
    ASSERT_TRUE(pool.Allocate(1, block));
    ids.push_back(cache.Register({.before = ids.back(), .tokens = abc}, block[0], true).id);
    pool.Release(block);
  };
  const auto find = [&](size_t i) { return cache.Find({.before = ids[i], .tokens = abc}); };
  for (int i = 0; i < 4; ++i) append();
  for (size_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(find(i)) << i;
    EXPECT_EQ(find(i)->id, ids[i + 1]);
    EXPECT_EQ(find(i)->block == PrefixCache::kEvicted, i < 2) << i;
  }
  // The first one is forgotten when a third is evicted.
  append();
  EXPECT_FALSE(find(0));
  EXPECT_TRUE(find(1));
  // A block that is computed again has its id again. Its allocation evicts the fourth.
  std::vector<int32_t> again;
  ASSERT_TRUE(pool.Allocate(1, again));
  EXPECT_EQ(cache.Register({.before = ids[2], .tokens = abc}, again[0], true).id, ids[3]);
  EXPECT_EQ(find(2)->block, again[0]);
  EXPECT_EQ(cache.RegisteredAs(again[0])->id, ids[3]);
  EXPECT_EQ(find(3)->block, PrefixCache::kEvicted);
  pool.Release(again);
}

TEST(RememberingPrefixCacheTest, BlocksThatAreNotKeptAreNotRemembered) {
  BlockPool pool(1);
  PrefixCache cache(pool, kBlockPositions, /*remembered=*/1);
  const std::vector<int32_t> abc = {1, 2, 3};
  std::vector<int32_t> block;
  ASSERT_TRUE(pool.Allocate(1, block));
  cache.Register({.tokens = abc}, block[0], /*keep=*/false);
  pool.Release(block);
  EXPECT_FALSE(cache.Find({.tokens = abc}));
}

TEST(BlockPoolTest, CountsSharedBlocksOnce) {
  BlockPool pool(3);
  std::vector<int32_t> blocks;
  ASSERT_TRUE(pool.Allocate(2, blocks));
  for (int i = 0; i < 3; ++i) pool.AddReference(blocks[0]);
  EXPECT_EQ(pool.allocated(), 2);
  EXPECT_EQ(pool.shared(), 1);
  EXPECT_EQ(pool.extra_references(), 3);
  for (int i = 0; i < 3; ++i) pool.Release({{blocks[0]}});
  EXPECT_EQ(pool.shared(), 0);
  EXPECT_EQ(pool.extra_references(), 0);
  EXPECT_EQ(pool.allocated(), 2);
}

}  // namespace
}  // namespace triptych::prefix_cache_test
