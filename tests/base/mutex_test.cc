#include "engine/base/mutex.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

namespace triptych::mutex_test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

class Counter {
 public:
  void Add() TRIPTYCH_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    ++count_;
    changed_.NotifyAll();
  }
  void WaitFor(int count) TRIPTYCH_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    while (count_ < count) changed_.Wait(mutex_);
  }
  bool WaitFor(int count, Clock::time_point deadline) TRIPTYCH_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    while (count_ < count) {
      if (!changed_.WaitUntil(mutex_, deadline)) return false;
    }
    return true;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int count_ TRIPTYCH_GUARDED_BY(mutex_) = 0;
};

TEST(MutexTest, ThreadsTakeTurnsAndWaitForEachOther) {
  constexpr int kThreads = 4, kTimes = 1000;
  Counter counter;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < kTimes; ++j) counter.Add();
    });
  }
  counter.WaitFor(kThreads * kTimes);
  for (std::thread& thread : threads) thread.join();
}

TEST(MutexTest, AWaitEndsAtItsDeadline) {
  Counter counter;
  const Clock::time_point deadline = Clock::now() + 1ms;
  EXPECT_FALSE(counter.WaitFor(1, deadline));
  EXPECT_GE(Clock::now(), deadline);
  counter.Add();
  EXPECT_TRUE(counter.WaitFor(1, Clock::now() + 5min));
}

}  // namespace
}  // namespace triptych::mutex_test
