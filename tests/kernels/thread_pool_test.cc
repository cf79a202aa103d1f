#include "engine/kernels/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace triptych::kernels::thread_pool_test {
namespace {

// Includes more threads than most machines have CPUs.
class ThreadPoolTest : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, RunsEveryTaskOnce) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.threads(), GetParam());
  for (const int64_t tasks : {0, 1, 2, 3, 7, 64, 1000}) {
    std::vector<int> runs(tasks);  // not atomic: each element belongs to one task
    pool.Run(tasks, [&](int64_t i) { ++runs[i]; });
    EXPECT_EQ(runs, std::vector<int>(tasks, 1));
  }
}

TEST_P(ThreadPoolTest, ForEachVisitsEachOnceHoweverTheWorkIsCut) {
  ThreadPool pool(GetParam());
  for (const int64_t count : {0, 1, 3, 50}) {
    for (const int64_t multiply_adds : {0, 100'000, 100'000'000}) {
      std::vector<int> visits(count);
      pool.ForEach(count, multiply_adds, [&](int64_t i) { ++visits[i]; });
      EXPECT_EQ(visits, std::vector<int>(count, 1));
    }
  }
}

TEST_P(ThreadPoolTest, TasksKnowTheirThread) {
  const int threads = GetParam();
  ThreadPool pool(threads);
  std::vector<std::thread::id> first;
  for (int run = 0; run < 5; ++run) {
    std::vector<std::thread::id> ids(threads);
    std::atomic<int> arrived = 0;
    pool.Run(threads, [&](int64_t, int thread) {
      ++arrived;
      while (arrived < threads) std::this_thread::yield();  // so each thread runs one of them
      ids.at(thread) = std::this_thread::get_id();
    });
    EXPECT_EQ(ids[0], std::this_thread::get_id());
    EXPECT_EQ(std::set<std::thread::id>(ids.begin(), ids.end()).size(), ids.size());
    EXPECT_EQ(std::count(ids.begin(), ids.end(), std::thread::id()), 0);
    if (run == 0) first = ids;
    EXPECT_EQ(ids, first);
  }
}

// Each run reads the previous run's results, with no synchronisation except the pool's.
TEST_P(ThreadPoolTest, ManyRunsInARow) {
  ThreadPool pool(GetParam());
  std::vector<int64_t> values(17), next(17);
  std::iota(values.begin(), values.end(), 0);
  for (int run = 0; run < 5000; ++run) {
    pool.Run(17, [&](int64_t i) { next[i] = values[(i + 1) % 17] + 1; });
    values.swap(next);
  }
  for (int64_t i = 0; i < 17; ++i) EXPECT_EQ(values[i], (i + 5000) % 17 + 5000);
}

// Workers go to sleep between runs that are far apart, and wake up.
TEST_P(ThreadPoolTest, RunsAfterAPause) {
  ThreadPool pool(GetParam());
  for (int run = 0; run < 20; ++run) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::atomic<int> runs = 0;
    pool.Run(50, [&](int64_t) { ++runs; });
    EXPECT_EQ(runs, 50);
  }
}

TEST_P(ThreadPoolTest, AnExceptionReachesTheCaller) {
  ThreadPool pool(GetParam());
  for (int run = 0; run < 100; ++run) {
    std::array<std::atomic<int>, 10> begun = {};
    try {
      pool.Run(10, [&](int64_t i) {
        ++begun[i];
        if (i % 3 == 0) throw std::runtime_error(std::to_string(i));
      });
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& e) {
      EXPECT_EQ(begun[std::stoi(e.what())], 1);
    }
    for (const std::atomic<int>& count : begun) EXPECT_LE(count, 1);
    std::atomic<int> runs = 0;
    pool.Run(10, [&](int64_t) { ++runs; });  // no task of the failed run remains
    EXPECT_EQ(runs, 10);
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Values(1, 2, 3, 16));

TEST(ThreadPool, UnusedPoolsEnd) {
  for (int i = 0; i < 50; ++i) ThreadPool pool(4);
}

TEST(ThreadPool, SeveralThreadsTakePart) {
  ThreadPool pool(2);
  // Two tasks that wait for each other need two threads.
  std::atomic<int> arrived = 0;
  pool.Run(2, [&](int64_t) {
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
  });
  EXPECT_EQ(arrived, 2);
}

TEST(ThreadPool, PoolsOfSeveralThreadsAtOnce) {
  std::vector<std::thread> callers;
  std::atomic<int64_t> total = 0;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      ThreadPool pool(4);
      for (int run = 0; run < 200; ++run) pool.Run(8, [&](int64_t i) { total += i; });
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(total, 4 * 200 * 28);
}

}  // namespace
}  // namespace triptych::kernels::thread_pool_test
