#include "engine/serving/engine_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "engine/serving/engine.h"
#include "tests/support/fake_model.h"
#include "tests/support/recording_sink.h"
#include "tests/support/tokenizer.h"

namespace triptych::serving::engine_loop_test {
namespace {

using namespace std::chrono_literals;

// Timeout: longer than any wait here; a test that reaches it has failed.
constexpr auto kForever = 5min;

// Long enough that a request outlasts any test.
constexpr int64_t kEndless = 100'000;

std::unique_ptr<Engine> MakeEngine() {
  return std::make_unique<Engine>(
      std::make_unique<FakeModel>(FakeModel::Shape{
          .max_positions = 2 * kEndless, .blocks = 2 * kEndless / 16, .block_positions = 16}),
      TestTokenizer(), EngineOptions{});
}

Request Greedy(std::string id, int64_t max_new_tokens) {
  Request request;
  request.id = std::move(id);
  request.prompt = {kBeginToken, 1, 2, 3};
  request.max_new_tokens = max_new_tokens;
  request.sampling.temperature = 0;
  request.ignore_eos = true;
  return request;
}

class EngineLoopTest : public testing::Test {
 protected:
  std::shared_ptr<RecordingSink> Submit(EngineLoop& loop, Engine& engine, std::string id,
                                        int64_t max_new_tokens) {
    const auto sink = std::make_shared<RecordingSink>();
    loop.Post([&engine, sink, request = Greedy(std::move(id), max_new_tokens)] {
      engine.Submit(request, sink);
    });
    return sink;
  }

  const std::unique_ptr<Engine> engine_ = MakeEngine();
};

TEST_F(EngineLoopTest, RunsTasksInOrderOnOneThread) {
  std::vector<int> order;
  std::vector<std::thread::id> threads;
  {
    EngineLoop loop({engine_.get()});
    for (int i = 0; i < 1000; ++i) {
      loop.Post([&, i] {
        order.push_back(i);
        threads.push_back(std::this_thread::get_id());
      });
    }
  }  // runs the posted tasks
  std::vector<int> expected(1000);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
  EXPECT_THAT(threads, testing::Each(threads[0]));
  EXPECT_NE(threads[0], std::this_thread::get_id());
}

TEST_F(EngineLoopTest, TasksMayPostTasks) {
  std::promise<void> done;
  EngineLoop loop({engine_.get()});
  loop.Post([&] { loop.Post([&] { done.set_value(); }); });
  EXPECT_EQ(done.get_future().wait_for(kForever), std::future_status::ready);
}

TEST_F(EngineLoopTest, DrainWaitsForTheLiveAndRefusesTheNew) {
  EngineLoop loop({engine_.get()});
  std::vector<std::shared_ptr<RecordingSink>> live;
  for (int i = 0; i < 5; ++i) live.push_back(Submit(loop, *engine_, std::to_string(i), 10 + i));
  EXPECT_TRUE(loop.Drain(kForever));
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(live[i]->final_calls, 1);
    EXPECT_EQ(live[i]->tokens.size(), 10u + i);
  }
  const auto late = Submit(loop, *engine_, "late", 3);
  EXPECT_TRUE(loop.Drain(kForever));  // again, and the task has run
  EXPECT_EQ(late->rejected, SubmitStatus::kStopping);
}

TEST_F(EngineLoopTest, DrainTellsWhenItsTimeIsOver) {
  std::promise<void> release;
  EngineLoop loop({engine_.get()});
  loop.Post([&] { release.get_future().wait(); });  // the loop cannot become idle
  EXPECT_FALSE(loop.Drain(1ms));
  release.set_value();
  EXPECT_TRUE(loop.Drain(kForever));
}

TEST_F(EngineLoopTest, DrainCancelsWhatIsLeftWhenItsTimeIsOver) {
  EngineLoop loop({engine_.get()});
  const auto endless = Submit(loop, *engine_, "endless", kEndless - 4);
  EXPECT_FALSE(loop.Drain(1ms));
  EXPECT_TRUE(loop.Drain(kForever));
  ASSERT_EQ(endless->final_calls, 1);
  EXPECT_EQ(endless->completion->reason, FinishReason::kCancelled);
}

TEST_F(EngineLoopTest, DrainOfAnIdleLoop) {
  EngineLoop loop({engine_.get()});
  EXPECT_TRUE(loop.Drain(kForever));
}

TEST_F(EngineLoopTest, DestructionCancelsTheLive) {
  std::vector<std::shared_ptr<RecordingSink>> live;
  {
    EngineLoop loop({engine_.get()});
    for (int i = 0; i < 2; ++i) {
      live.push_back(Submit(loop, *engine_, std::to_string(i), kEndless - 4));
    }
  }
  for (const auto& sink : live) {
    EXPECT_EQ(sink->final_calls, 1);
    ASSERT_TRUE(sink->completion.has_value());
    EXPECT_EQ(sink->completion->reason, FinishReason::kCancelled);
  }
  EXPECT_TRUE(engine_->idle());
  EXPECT_EQ(engine_->Stats().allocated_bytes, 0);
}

TEST_F(EngineLoopTest, TasksReachAnEngineAtWork) {
  EngineLoop loop({engine_.get()});
  const auto endless = Submit(loop, *engine_, "endless", kEndless - 4);
  // The loop answers requests for statistics between steps.
  std::promise<KvCacheStats> asked;
  loop.Post([&] { asked.set_value(engine_->Stats()); });
  const KvCacheStats stats = asked.get_future().get();
  EXPECT_EQ(stats.running + stats.waiting, 1);
  std::promise<void> cancelled;
  loop.Post([&] {
    engine_->Cancel("endless");
    cancelled.set_value();
  });
  ASSERT_EQ(cancelled.get_future().wait_for(kForever), std::future_status::ready);
  EXPECT_EQ(endless->completion->reason, FinishReason::kCancelled);
  EXPECT_TRUE(loop.Drain(kForever));
}

TEST_F(EngineLoopTest, StepsSeveralEnginesInTurn) {
  const auto other = MakeEngine();
  EngineLoop loop({engine_.get(), other.get()});
  // Neither engine starves while the other has endless work.
  const auto endless = Submit(loop, *engine_, "endless", kEndless - 4);
  std::promise<void> finished;
  class Signal final : public RequestSink {
   public:
    explicit Signal(std::promise<void>& promise) : promise_(promise) {}
    void OnRejected(SubmitStatus) override {}
    void OnDelta(Delta) override {}
    void OnFinish(Completion) override { promise_.set_value(); }

   private:
    std::promise<void>& promise_;
  };
  loop.Post([&] { other->Submit(Greedy("short", 20), std::make_shared<Signal>(finished)); });
  EXPECT_EQ(finished.get_future().wait_for(kForever), std::future_status::ready);
  loop.Post([&] { engine_->Cancel("endless"); });
  EXPECT_TRUE(loop.Drain(kForever));
  EXPECT_GT(endless->tokens.size(), 0u);
}

TEST_F(EngineLoopTest, RequestsFromSeveralThreads) {
  constexpr int kThreads = 4, kRequests = 25;
  std::vector<std::vector<std::shared_ptr<RecordingSink>>> sinks(kThreads);
  EngineLoop loop({engine_.get()});
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRequests; ++i) {
        const std::string id = std::to_string(t) + "/" + std::to_string(i);
        sinks[t].push_back(Submit(loop, *engine_, id, 1 + i % 7));
        if (i % 5 == 4) loop.Post([this, id] { engine_->Cancel(id); });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(loop.Drain(kForever));
  for (const auto& of_thread : sinks) {
    for (int i = 0; i < kRequests; ++i) {
      const RecordingSink& sink = *of_thread[i];
      EXPECT_EQ(sink.final_calls, 1);
      EXPECT_EQ(sink.late_deltas, 0);
      ASSERT_TRUE(sink.completion.has_value());
      if (sink.completion->reason == FinishReason::kLength) {
        EXPECT_EQ(std::ssize(sink.tokens), 1 + i % 7);
      } else {
        EXPECT_EQ(sink.completion->reason, FinishReason::kCancelled);
        EXPECT_EQ(i % 5, 4);
      }
    }
  }
  EXPECT_TRUE(engine_->idle());
}

TEST(EngineLoopLostDevice, FailsTheRequestsOfAllEnginesAndRefusesMore) {
  const FakeModel::Shape shape{
      .max_positions = 2 * kEndless, .blocks = 2 * kEndless / 16, .block_positions = 16};
  auto lost = std::make_unique<FakeModel>(shape);
  lost->before_step = [](const StepInput&) { throw DeviceLost("cuda:0: gone"); };
  Engine first(std::move(lost), TestTokenizer(), EngineOptions{});
  const std::unique_ptr<Engine> second = MakeEngine();
  std::promise<std::string> told;
  const auto sink = std::make_shared<RecordingSink>(), other = std::make_shared<RecordingSink>();
  const auto late = std::make_shared<RecordingSink>();
  {
    EngineLoop loop({&first, second.get()},
                    [&](const std::string& error) { told.set_value(error); });
    loop.Post([&] {
      second->Submit(Greedy("other", kEndless), other);
      first.Submit(Greedy("a", kEndless), sink);
    });
    std::future<std::string> error = told.get_future();
    ASSERT_EQ(error.wait_for(kForever), std::future_status::ready);
    EXPECT_EQ(error.get(), "cuda:0: gone");
    loop.Post([&] { second->Submit(Greedy("late", 1), late); });
    EXPECT_TRUE(loop.Drain(kForever));
  }
  EXPECT_EQ(sink->completion->reason, FinishReason::kFailed);
  EXPECT_EQ(other->completion->reason, FinishReason::kFailed);
  EXPECT_EQ(late->rejected, SubmitStatus::kStopping);
}

}  // namespace
}  // namespace triptych::serving::engine_loop_test
