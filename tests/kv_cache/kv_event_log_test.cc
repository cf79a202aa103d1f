// Tests of the events of a prefix cache.
#include "engine/kv_cache/kv_event_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>

#include "engine/kv_cache/prefix_cache.h"

namespace triptych::kv_event_log_test {
namespace {

using testing::UnorderedElementsAre;

constexpr int64_t kBlockPositions = 2;
constexpr std::chrono::steady_clock::time_point kNow(std::chrono::seconds(5));

using Tokens = std::vector<int32_t>;

// The blocks that can be found, by name, as a reader of the events knows them.
class Reader {
 public:
  Reader(const KvEventLog& log, uint64_t from) : log_(log), next_(from) {}

  // Reads to the end.
  void Read() {
    for (auto batch = log_.Read(next_); batch != nullptr; batch = log_.Read(++next_)) {
      EXPECT_EQ(batch->number, next_);
      auto tokens = batch->tokens.begin();
      for (const KvEvent& event : batch->events) {
        if (event.kind == KvEvent::Kind::kCleared) found_.clear();
        if (event.kind == KvEvent::Kind::kRemoved) found_.erase(event.block);
        if (event.kind == KvEvent::Kind::kStored) {
          found_[event.block] = Tokens(tokens, tokens + kBlockPositions);
          EXPECT_TRUE(!event.parent || found_.contains(*event.parent));
          tokens += kBlockPositions;
        }
      }
    }
  }
  std::vector<Tokens> found() const {
    std::vector<Tokens> all;
    for (const auto& [name, tokens] : found_) all.push_back(tokens);
    return all;
  }

 private:
  const KvEventLog& log_;
  uint64_t next_;
  std::map<uint64_t, Tokens> found_;
};

class KvEventLogTest : public testing::Test {
 protected:
  KvEventLogTest() { cache_.Observe(log_); }

  // Computes a block and releases it. Returns its id.
  PrefixCache::Prefix Compute(const Tokens& tokens,
                              PrefixCache::Prefix before = PrefixCache::kShared, bool keep = true,
                              int32_t group = 0) {
    std::vector<int32_t> block;
    EXPECT_TRUE(pool_.Allocate(1, block));
    const auto id =
        cache_.Register({.before = before, .tokens = tokens, .group = group}, block[0], keep).id;
    pool_.Release(block);
    log_.Publish(kNow);
    return id;
  }

  BlockPool pool_{3};
  PrefixCache cache_{pool_, kBlockPositions};
  KvEventLog log_{kBlockPositions, /*kept_events=*/4, /*first=*/10};
};

TEST_F(KvEventLogTest, ReplayingThemGivesTheCache) {
  Reader reader(log_, 10);
  const auto first = Compute({1, 2});
  Compute({3, 4}, first);
  reader.Read();
  EXPECT_THAT(reader.found(), UnorderedElementsAre(Tokens{1, 2}, Tokens{3, 4}));
  Compute({5, 6});
  Compute({7, 8});  // evicts {1, 2}, which was released first
  reader.Read();
  EXPECT_THAT(reader.found(), UnorderedElementsAre(Tokens{3, 4}, Tokens{5, 6}, Tokens{7, 8}));
}

TEST_F(KvEventLogTest, TellOnlyOfBlocksThatOtherRequestsFind) {
  Compute({1, 2}, cache_.NewRoot(), /*keep=*/false);  // of the choices of one request
  Compute({1, 2}, PrefixCache::kShared, true, /*group=*/1);
  EXPECT_EQ(log_.kept().next, 10);
}

TEST_F(KvEventLogTest, ASlowReaderSeesByTheNumbersWhatItLost) {
  for (int32_t i = 0; i < 3; ++i) Compute({i, i});
  EXPECT_TRUE(log_.kept().complete());
  for (int32_t i = 3; i < 6; ++i) Compute({i, i});  // removes one block, stores another
  EXPECT_EQ(log_.kept().first, 14);                 // the last four events
  EXPECT_EQ(log_.kept().next, 16);
  EXPECT_FALSE(log_.kept().complete());
  EXPECT_EQ(log_.Read(13), nullptr);
  EXPECT_EQ(log_.Read(14)->number, 14);
  EXPECT_EQ(log_.Read(14)->first_event, 6);
  EXPECT_EQ(log_.Read(16), nullptr);
}

TEST_F(KvEventLogTest, AReaderCanStartWithTheStateAtARestart) {
  Reader old(log_, 10);
  for (int32_t i = 0; i < 6; ++i) {
    Compute({i, i});
    old.Read();
  }
  ASSERT_FALSE(log_.kept().complete());
  log_.Restart();
  cache_.AddAll(log_, kNow);
  log_.Publish(kNow);
  ASSERT_TRUE(log_.kept().complete());
  Reader late(log_, log_.kept().start);
  late.Read();
  old.Read();
  EXPECT_THAT(late.found(), UnorderedElementsAre(Tokens{3, 3}, Tokens{4, 4}, Tokens{5, 5}));
  EXPECT_EQ(old.found(), late.found());
}

TEST(KvEventLogRestartTest, NoBatchExceedsTheBound) {
  constexpr int64_t kBlocks = 2 * KvEventLog::kMaxEvents;
  BlockPool pool(kBlocks);
  PrefixCache cache(pool, kBlockPositions);
  std::vector<int32_t> blocks;
  ASSERT_TRUE(pool.Allocate(kBlocks, blocks));
  for (const int32_t block : blocks) cache.Register({.tokens = Tokens{1, block}}, block, true);
  KvEventLog log(kBlockPositions, 2 * kBlocks, /*first=*/1);
  log.Restart();
  cache.AddAll(log, kNow);
  log.Publish(kNow);
  std::vector<int64_t> sizes;
  for (uint64_t i = 1; i < log.kept().next; ++i) {
    sizes.push_back(std::ssize(log.Read(i)->events));
    EXPECT_EQ(log.Read(i)->time, kNow);
  }
  // kCleared and the blocks.
  EXPECT_THAT(sizes, testing::ElementsAre(KvEventLog::kMaxEvents, KvEventLog::kMaxEvents, 1));
}

TEST_F(KvEventLogTest, ABlockBeforeAnotherIsStoredFirst) {
  const auto first = Compute({1, 2});
  const auto second = Compute({3, 4}, first);
  // The free block that is allocated first lies before the blocks of its prefix.
  Compute({5, 6}, second);
  log_.Restart();
  cache_.AddAll(log_, kNow);
  log_.Publish(kNow);
  Reader reader(log_, log_.kept().start);
  reader.Read();  // expects it
  EXPECT_EQ(reader.found().size(), 3);
}

TEST_F(KvEventLogTest, CallsBackOncePerBatch) {
  int batches = 0;
  log_.OnBatch([&] { ++batches; });
  Compute({1, 2});
  log_.Publish(kNow);
  log_.Publish(kNow);
  EXPECT_EQ(batches, 1);
}

TEST(BlockNamesTest, DifferBetweenProcesses) {
  BlockPool pool(1), other_pool(1);
  const PrefixCache cache(pool, kBlockPositions), other(other_pool, kBlockPositions);
  EXPECT_EQ(cache.NameOf(1), cache.NameOf(1));
  EXPECT_NE(cache.NameOf(1), cache.NameOf(2));
  EXPECT_NE(cache.NameOf(1), other.NameOf(1));
}

}  // namespace
}  // namespace triptych::kv_event_log_test
