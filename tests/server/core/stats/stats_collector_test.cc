#include "server/core/stats/stats_collector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/server/core/fake_engine_thread.h"

namespace triptych::server::stats_collector_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

// Two engine threads that run their tasks when the test steps them.
class StatsCollectorTest : public testing::Test {
 protected:
  using Tasks = std::vector<std::function<void()>>;

  static void Run(Tasks& tasks) {
    for (const auto& task : std::exchange(tasks, {})) task();
  }
  // Runs the tasks between two steps, and then the answers.
  void Step() {
    Run(engines_.tasks);
    Run(answer_tasks_);
  }

  FakeEngineThread engines_;
  Tasks answer_tasks_;
  serving::EngineClock::time_point now_;
  StatsCollector desk_{
      engines_, [this](std::function<void()> task) { answer_tasks_.push_back(std::move(task)); },
      [this] { return now_; }};
};

TEST_F(StatsCollectorTest, OneSnapshotAStepForAllWhoAsk) {
  std::vector<std::string> answers;
  const auto ask = [&] {
    desk_.Ask(/*block_maps=*/false, [&](const std::vector<ModelStats>& stats) {
      answers.push_back(stats[0].model);
      EXPECT_EQ(stats[0].block_map, nullptr);
    });
  };
  for (int i = 0; i < 3000; ++i) ask();
  EXPECT_THAT(engines_.tasks, SizeIs(1));
  Run(engines_.tasks);
  EXPECT_EQ(engines_.snapshots, 1);
  EXPECT_THAT(answers, IsEmpty()) << "answered elsewhere";
  ask();  // the answer can be older than the request
  Run(answer_tasks_);
  EXPECT_THAT(answers, SizeIs(3000));
  Step();
  EXPECT_EQ(engines_.snapshots, 2);
  EXPECT_THAT(answers, SizeIs(3001));
  EXPECT_EQ(answers.back(), "2");
  EXPECT_THAT(engines_.tasks, IsEmpty()) << "nobody asks";
}

TEST_F(StatsCollectorTest, BlockMapsAreNotMadeAgainTooSoon) {
  std::vector<std::string> answers;
  const auto ask = [&] {
    desk_.Ask(/*block_maps=*/true, [&](const std::vector<ModelStats>& stats) {
      EXPECT_NE(stats[0].block_map, nullptr);
      answers.push_back(stats[0].model);
    });
  };
  for (int i = 0; i < 100; ++i) ask();
  Step();
  now_ += StatsCollector::kBlockMapAge - std::chrono::nanoseconds(1);
  ask();
  Step();
  EXPECT_THAT(answers, SizeIs(101));
  EXPECT_EQ(answers.back(), "1") << "with the statistics of its moment";
  desk_.Ask(/*block_maps=*/false,
            [&](const std::vector<ModelStats>& stats) { answers.push_back(stats[0].model); });
  Step();
  EXPECT_EQ(answers.back(), "2") << "statistics alone are of now";
  now_ += std::chrono::nanoseconds(1);
  ask();
  Step();
  EXPECT_EQ(answers.back(), "3");
}

TEST_F(StatsCollectorTest, BlockMapsTakeASmallShareOfTheEnginesTime) {
  constexpr auto kTakes = StatsCollector::kBlockMapAge;
  engines_.on_maps = [&] { now_ += kTakes; };
  const auto ask = [&] {
    desk_.Ask(/*block_maps=*/true, [](const std::vector<ModelStats>&) {});
    Step();
  };
  ask();
  now_ += kTakes * (StatsCollector::kBlockMapPause - 1) - std::chrono::nanoseconds(1);
  ask();
  EXPECT_EQ(engines_.snapshots, 1);
  now_ += std::chrono::nanoseconds(1);
  ask();
  EXPECT_EQ(engines_.snapshots, 2);
}

TEST_F(StatsCollectorTest, EqualListingsAreOneAndTheOthersWaitForTheNextStep) {
  std::vector<uint64_t> answers;
  const auto ask = [&](uint64_t after) {
    return desk_.Ask({.models = {0}, .after = after, .limit = 5, .client = {}},
                     [&, after](const std::vector<LiveSequence>& sequences) {
                       EXPECT_EQ(sequences[0].model, std::to_string(after));
                       answers.push_back(after);
                     });
  };
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(ask(7));
  Step();
  EXPECT_THAT(engines_.listings, ElementsAre(7));
  EXPECT_THAT(answers, SizeIs(100));

  engines_.listings.clear();
  answers.clear();
  const size_t n = StatsCollector::kListingsPerStep;
  for (uint64_t after = 1; after <= 2 * n + 1; ++after) EXPECT_TRUE(ask(after));
  Step();
  EXPECT_THAT(engines_.listings, SizeIs(n));
  Step();
  EXPECT_THAT(engines_.listings, SizeIs(2 * n));
  Step();
  EXPECT_THAT(answers, SizeIs(2 * n + 1));
  EXPECT_TRUE(std::is_sorted(answers.begin(), answers.end()));
  EXPECT_THAT(engines_.tasks, IsEmpty());
}

TEST_F(StatsCollectorTest, BoundsHowManyListingsWait) {
  const auto ask = [&](uint64_t after) {
    return desk_.Ask({.models = {0}, .after = after, .limit = 5, .client = {}}, [](const auto&) {});
  };
  for (uint64_t after = 0; after < StatsCollector::kMaxListings; ++after) EXPECT_TRUE(ask(after));
  EXPECT_FALSE(ask(1'000'000));
  EXPECT_TRUE(ask(0)) << "costs nothing more";
  Step();
  EXPECT_TRUE(ask(1'000'000));
}

TEST(SortAndCutTest, OrdersByArrival) {
  std::vector<LiveSequence> live;
  for (const uint64_t number : {9, 11, 2, 10}) live.emplace_back().stats.number = number;
  const auto numbers = [&] {
    std::vector<uint64_t> all;
    for (const LiveSequence& one : live) all.push_back(one.stats.number);
    return all;
  };
  EXPECT_FALSE(SortAndCut({.models = {}, .after = 0, .limit = 4, .client = {}}, live));
  EXPECT_THAT(numbers(), ElementsAre(2, 9, 10, 11));
  EXPECT_TRUE(SortAndCut({.models = {}, .after = 0, .limit = 3, .client = {}}, live));
  EXPECT_THAT(numbers(), ElementsAre(2, 9, 10));
}

TEST(HostStatsTest, AddsUp) {
  RegistryStats stats;
  for (const int64_t bytes : {1, 10}) {
    ModelStats model;
    model.model = std::to_string(bytes);
    model.kv_cache.pool_bytes = 8 * bytes;
    model.kv_cache.used_bytes = 1 * bytes;
    model.kv_cache.allocated_bytes = 2 * bytes;
    model.kv_cache.evictable_bytes = 1 * bytes;
    model.kv_cache.free_bytes = 5 * bytes;
    stats.Add(model);
  }
  EXPECT_EQ(stats.models.size(), 2u);
  EXPECT_EQ(stats.models[1].model, "10");
  EXPECT_EQ(stats.pool_bytes, 88);
  EXPECT_EQ(stats.used_bytes, 11);
  EXPECT_EQ(stats.allocated_bytes, 22);
  EXPECT_EQ(stats.evictable_bytes, 11);
  EXPECT_EQ(stats.free_bytes, 55);
}

}  // namespace
}  // namespace triptych::server::stats_collector_test
