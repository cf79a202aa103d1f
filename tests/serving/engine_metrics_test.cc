// Tests of the metrics that an engine measures and publishes to other threads.
#include "engine/serving/engine_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "engine/serving/engine_loop.h"
#include "tests/support/fake_model.h"
#include "tests/support/recording_sink.h"
#include "tests/support/tokenizer.h"

namespace triptych::serving::engine_metrics_test {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;

TEST(HistogramTest, ABoundIsInItsOwnBucket) {
  constexpr double kBounds[] = {1, 2, 4};
  Histogram histogram(kBounds);
  for (const double value : {0.0, 1.0, 1.5, 2.0, 4.0, 4.5, 100.0}) histogram.Add(value);
  histogram.Add(2500ms);
  std::vector<int64_t> counts;
  for (size_t i = 0; i <= std::size(kBounds); ++i) counts.push_back(histogram.count(i));
  EXPECT_THAT(counts, ElementsAre(2, 2, 2, 2));
  EXPECT_EQ(histogram.total(), 8);
  EXPECT_DOUBLE_EQ(histogram.sum(), 115.5);
}

// An engine with steps of 3 ms, on a virtual clock that only steps advance.
class EngineMetricsTest : public testing::Test {
 protected:
  EngineMetricsTest() {
    auto model = std::make_unique<FakeModel>(
        FakeModel::Shape{.max_positions = 64, .blocks = 20, .block_positions = 4});
    model->before_step = [this](const StepInput&) { now_ += 3ms; };
    engine_ = std::make_unique<Engine>(std::move(model), TestTokenizer(),
                                       EngineOptions{.max_running = 2}, [this] { return now_; });
  }

  std::shared_ptr<RecordingSink> Submit(const std::string& id, std::vector<int32_t> prompt,
                                        int64_t tokens, int32_t choices = 1) {
    Request request;
    request.id = id;
    request.arrived = now_;
    request.prompt = std::move(prompt);
    request.max_new_tokens = tokens;
    request.choices = choices;
    request.ignore_eos = true;
    const auto sink = std::make_shared<RecordingSink>();
    engine_->Submit(request, sink);
    return sink;
  }
  void Run() {
    while (engine_->Step()) {
    }
  }
  const EngineMetrics& metrics() const { return engine_->metrics(); }

  EngineClock::time_point now_{1h};
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineMetricsTest, MeasuresTimesTokensAndBytes) {
  const auto sink = Submit("a", {1, 2, 3, 4, 5}, 4);
  now_ += 10ms;  // queue time
  Run();         // a step for the prompt and the first token, three for the others
  EXPECT_DOUBLE_EQ(metrics().queue_time.sum(), 0.010);
  EXPECT_DOUBLE_EQ(metrics().time_to_first_token.sum(), 0.013);
  EXPECT_EQ(metrics().inter_token_time.total(), 3);
  EXPECT_DOUBLE_EQ(metrics().inter_token_time.sum(), 0.009);
  EXPECT_DOUBLE_EQ(metrics().end_to_end_time.sum(), 0.022);
  EXPECT_EQ(metrics().step_time.total(), 4);
  EXPECT_DOUBLE_EQ(metrics().step_time.sum(), 0.012);
  EXPECT_DOUBLE_EQ(metrics().step_sequences.sum(), 4);
  EXPECT_DOUBLE_EQ(metrics().step_tokens.sum(), 5 + 3);
  const RequestUsage& usage = sink->completion->usage;
  EXPECT_DOUBLE_EQ(metrics().cache_bytes.sum(), static_cast<double>(usage.kv_cache.used_bytes));
  EXPECT_EQ(usage.first_token_time, 13ms);
  EXPECT_EQ(usage.mean_wait, 3ms);
  EXPECT_EQ(usage.longest_wait, 3ms);
  EXPECT_EQ(usage.total_time, 22ms);
  const auto scored = Submit("b", {1, 2, 3}, 0);
  Run();
  EXPECT_EQ(scored->completion->usage.first_token_time, std::nullopt);
}

TEST_F(EngineMetricsTest, CountsWhatThePrefixCacheWasAskedFor) {
  const std::vector<int32_t> prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  Submit("a", prompt, 2);
  Run();
  EXPECT_EQ(metrics().prefix_queries.value(), 9);
  EXPECT_EQ(metrics().prefix_hits.value(), 0);
  const auto second = Submit("b", prompt, 2);
  Run();
  EXPECT_EQ(metrics().prefix_queries.value(), 18);
  EXPECT_EQ(metrics().prefix_hits.value(), 8);
  EXPECT_EQ(second->completion->usage.cached_prompt_tokens, 8);
}

TEST_F(EngineMetricsTest, ACompletionSaysWhatIsLeftToDo) {
  const auto first = Submit("a", {1, 2, 3, 4, 5}, 1);
  const auto second = Submit("b", {1, 2, 3, 4}, 3);
  const auto third = Submit("c", {1, 2, 3, 4}, 1);  // two run
  engine_->Step();
  ASSERT_TRUE(first->completion);
  EXPECT_EQ(first->completion->load.running, 1);
  EXPECT_EQ(first->completion->load.waiting, 1);
  EXPECT_DOUBLE_EQ(first->completion->load.kv_cache_utilization, 1 / 20.0);
  Run();
  for (const auto& last : {second, third}) ASSERT_TRUE(last->completion);
  const EngineLoad& none = second->completion->load;
  EXPECT_EQ(none.running + none.waiting, 0);
  EXPECT_EQ(none.kv_cache_utilization, 0);
}

TEST_F(EngineMetricsTest, PublishesWhatHasChanged) {
  EXPECT_EQ(engine_->Published().total_blocks, 20);
  Submit("a", {1, 2, 3}, 2);
  EXPECT_EQ(engine_->Published().waiting, 0) << "not yet";
  engine_->Publish();
  EXPECT_EQ(engine_->Published().waiting, 1);
  Run();
  engine_->Publish();
  EXPECT_EQ(engine_->Published().requests.generated_tokens, 2);
  EXPECT_EQ(engine_->Published().waiting, 0);
}

TEST(PublishedTest, IsThereWhileAStepTakesForever) {
  std::promise<void> begun, end;
  auto model = std::make_unique<FakeModel>(FakeModel::Shape{});
  model->before_step = [&, first = true](const StepInput&) mutable {
    if (!std::exchange(first, false)) return;
    begun.set_value();
    end.get_future().wait();
  };
  Engine engine(std::move(model), TestTokenizer(), EngineOptions{});
  EngineLoop loop({&engine});
  const auto sink = std::make_shared<RecordingSink>();
  Request request;
  request.id = "a";
  request.prompt = {1, 2, 3};
  request.max_new_tokens = 2;
  // The request has arrived when the step before is over.
  loop.Post([&] {
    engine.Submit(request, sink);
    engine.Publish();
  });
  begun.get_future().wait();
  EXPECT_EQ(engine.Published().waiting, 1);
  end.set_value();
  EXPECT_TRUE(loop.Drain(1min));
  // Published with the step that ended the request, before the loop sees that no sequence is live.
  EXPECT_EQ(engine.Published().requests.finished, 1);
  EXPECT_EQ(engine.Published().running, 0);
}

}  // namespace
}  // namespace triptych::serving::engine_metrics_test
