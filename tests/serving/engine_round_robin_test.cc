#include "engine/serving/engine_round_robin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/fake_model.h"
#include "tests/support/recording_sink.h"
#include "tests/support/tokenizer.h"

namespace triptych::serving::engine_round_robin_test {
namespace {

using ::testing::ElementsAre;

// Engines with different step times, on a virtual clock that only steps advance.
class EngineRoundRobinTest : public testing::Test {
 protected:
  Engine& Add(std::chrono::microseconds step) {
    auto model =
        std::make_unique<FakeModel>(FakeModel::Shape{.max_positions = 30000, .blocks = 30000});
    const size_t index = used_.size();
    used_.push_back({});
    model->before_step = [this, step, index](const StepInput&) {
      now_ += step;
      used_[index] += step;
    };
    engines_.push_back(std::make_unique<Engine>(std::move(model), TestTokenizer(), EngineOptions(),
                                                [this] { return now_; }));
    return *engines_.back();
  }
  std::unique_ptr<EngineRoundRobin> Make() {
    std::vector<Engine*> engines;
    for (const auto& engine : engines_) engines.push_back(engine.get());
    return std::make_unique<EngineRoundRobin>(
        engines, [this] { ++wakes_; }, [this] { return now_; });
  }
  std::shared_ptr<RecordingSink> Submit(Engine& engine, const std::string& id, int64_t tokens) {
    Request request;
    request.id = id;
    request.arrived = now_;
    request.prompt = {1, 2};
    request.max_new_tokens = tokens;
    request.ignore_eos = true;
    const auto sink = std::make_shared<RecordingSink>();
    engine.Submit(request, sink);
    return sink;
  }

  EngineClock::time_point now_;
  std::vector<std::chrono::microseconds> used_;
  std::vector<std::unique_ptr<Engine>> engines_;
  int wakes_ = 0;
};

TEST_F(EngineRoundRobinTest, SharesTimeWhateverAStepCosts) {
  Engine& quick = Add(std::chrono::microseconds(100));
  Engine& slow = Add(std::chrono::microseconds(3000));
  const auto turns = Make();
  Submit(quick, "a", 20000);
  Submit(slow, "b", 20000);
  for (int i = 0; i < 3100; ++i) EXPECT_TRUE(turns->Turn());
  EXPECT_NEAR(used_[0].count(), used_[1].count(), 3100);  // one step of each engine
}

TEST_F(EngineRoundRobinTest, TimeWithoutWorkIsNotMadeUpFor) {
  Engine& a = Add(std::chrono::microseconds(100));
  Engine& b = Add(std::chrono::microseconds(100));
  const auto turns = Make();
  Submit(a, "a", 20000);
  for (int i = 0; i < 1000; ++i) turns->Turn();
  Submit(b, "b", 20000);
  const auto before = used_[0];
  for (int i = 0; i < 100; ++i) turns->Turn();
  EXPECT_NEAR((used_[0] - before).count(), used_[1].count(), 200);
}

TEST_F(EngineRoundRobinTest, WakesOnceForTasksAndRunsThemInOrder) {
  Add(std::chrono::microseconds(1));
  const auto turns = Make();
  EXPECT_FALSE(turns->Turn());
  std::vector<int> ran;
  turns->Post([&] { ran.push_back(1); });
  turns->Post([&] { turns->Post([&] { ran.push_back(3); }); });
  turns->Post([&] { ran.push_back(2); });
  EXPECT_EQ(wakes_, 1);
  EXPECT_TRUE(turns->Turn());
  EXPECT_THAT(ran, ElementsAre(1, 2));
  EXPECT_EQ(wakes_, 2);
  EXPECT_TRUE(turns->Turn());
  EXPECT_THAT(ran, ElementsAre(1, 2, 3));
  EXPECT_FALSE(turns->Turn());
}

TEST_F(EngineRoundRobinTest, ALongPromptOfOneEngineKeepsThoseOfAnotherAtTheirPace) {
  // A step of the prompt's engine takes time in proportion to its rows.
  Engine& decoding = Add(std::chrono::milliseconds(10));
  auto model =
      std::make_unique<FakeModel>(FakeModel::Shape{.max_positions = 30000, .blocks = 30000});
  std::vector<int64_t> rows;
  model->before_step = [&](const StepInput& step) {
    rows.push_back(std::ssize(step.ids));
    now_ += std::chrono::milliseconds(1) * step.ids.size();
  };
  engines_.push_back(std::make_unique<Engine>(std::move(model), TestTokenizer(), EngineOptions(),
                                              [this] { return now_; }));
  const auto turns = Make();
  Submit(decoding, "a", 20000);
  for (int i = 0; i < 10; ++i) turns->Turn();
  Request prompt;
  prompt.id = "p";
  prompt.arrived = now_;
  prompt.prompt.assign(5000, 1);
  prompt.max_new_tokens = 1;
  engines_.back()->Submit(prompt, std::make_shared<RecordingSink>());
  while (!engines_.back()->idle()) turns->Turn();
  EXPECT_LE(*std::max_element(rows.begin(), rows.end()), 20);
}

}  // namespace
}  // namespace triptych::serving::engine_round_robin_test
