#include "engine/serving/engine_loop.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "engine/kernels/threads.h"
#include "tests/support/random_model.h"
#include "tests/support/recording_sink.h"
#include "tests/support/tokenizer.h"

namespace triptych {
namespace {

using namespace std::chrono_literals;

// Longer than anything here takes; a test that reaches it has failed.
constexpr auto kForever = 5min;

// A context without a table of positions, so long that a request can go on for hours.
constexpr int64_t kEndless = 100'000;

std::unique_ptr<Engine> MakeEngine(AttentionKind kind) {
  ModelConfig config = SmallModel(kind);
  config.position_embedding = PositionEmbedding::kNone;
  config.max_position_embeddings = 2 * kEndless;
  EngineOptions options;
  options.kv_cache_bytes =
      MakeCacheGeometry(config, options.cache_format, options.block_positions).BytesPerPosition() *
      2 * kEndless;
  return std::make_unique<Engine>(ServingDecoder(config, RandomWeights(config, 1)), TestTokenizer(),
                                  options);
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

  const std::unique_ptr<Engine> engine_ = MakeEngine(AttentionKind::kGqa);
};

TEST_F(EngineLoopTest, RunsTasksInOrderOnOneThread) {
  std::vector<int> order;
  std::vector<std::thread::id> threads;
  int compute_threads = 0, torch_threads = 0;
  {
    EngineLoop loop({engine_.get()}, 3);
    loop.Post([&] {
      compute_threads = ComputePool().threads();
      torch_threads = at::get_num_threads();
    });
    for (int i = 0; i < 1000; ++i) {
      loop.Post([&, i] {
        order.push_back(i);
        threads.push_back(std::this_thread::get_id());
      });
    }
  }  // runs what was posted
  std::vector<int> expected(1000);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
  EXPECT_THAT(threads, testing::Each(threads[0]));
  EXPECT_NE(threads[0], std::this_thread::get_id());
  EXPECT_EQ(compute_threads, 3);
  EXPECT_EQ(torch_threads, 1);
}

TEST_F(EngineLoopTest, TasksMayPostTasks) {
  std::promise<void> done;
  EngineLoop loop({engine_.get()}, 1);
  loop.Post([&] { loop.Post([&] { done.set_value(); }); });
  EXPECT_EQ(done.get_future().wait_for(kForever), std::future_status::ready);
}

TEST_F(EngineLoopTest, DrainWaitsForTheLiveAndRefusesTheNew) {
  EngineLoop loop({engine_.get()}, 1);
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
  EngineLoop loop({engine_.get()}, 1);
  loop.Post([&] { release.get_future().wait(); });  // the loop cannot become idle
  EXPECT_FALSE(loop.Drain(1ms));
  release.set_value();
  EXPECT_TRUE(loop.Drain(kForever));
}

TEST_F(EngineLoopTest, DrainCancelsWhatIsLeftWhenItsTimeIsOver) {
  EngineLoop loop({engine_.get()}, 1);
  const auto endless = Submit(loop, *engine_, "endless", kEndless - 4);
  EXPECT_FALSE(loop.Drain(1ms));
  EXPECT_TRUE(loop.Drain(kForever));
  ASSERT_EQ(endless->final_calls, 1);
  EXPECT_EQ(endless->completion->reason, FinishReason::kCancelled);
}

TEST_F(EngineLoopTest, DrainOfAnIdleLoop) {
  EngineLoop loop({engine_.get()}, 1);
  EXPECT_TRUE(loop.Drain(kForever));
}

TEST_F(EngineLoopTest, DestructionCancelsTheLive) {
  std::vector<std::shared_ptr<RecordingSink>> live;
  {
    EngineLoop loop({engine_.get()}, 1);
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
  EXPECT_EQ(engine_->Stats().reserved_bytes, 0);
}

TEST_F(EngineLoopTest, TasksReachAnEngineAtWork) {
  EngineLoop loop({engine_.get()}, 1);
  const auto endless = Submit(loop, *engine_, "endless", kEndless - 4);
  // Questions are answered between steps.
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
  const auto other = MakeEngine(AttentionKind::kMla);
  EngineLoop loop({engine_.get(), other.get()}, 2);
  // Neither engine starves while the other has work without end.
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
  EngineLoop loop({engine_.get()}, 1);
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

}  // namespace
}  // namespace triptych
