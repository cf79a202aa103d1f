#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/core/requests/call.h"
#include "server/core/requests/scores.h"
#include "tests/server/core/fake_engine_thread.h"
#include "tests/server/core/model_info.h"

namespace triptych::server::scoring_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

serving::Completion Finished(serving::FinishReason reason, const std::string& error = "") {
  serving::Completion completion;
  completion.reason = reason;
  completion.error = error;
  completion.usage.prompt_tokens = 3;
  return completion;
}

class ScoringTest : public testing::Test {
 protected:
  std::shared_ptr<Call> Start(int inputs) {
    std::vector<ValidRequest> requests(inputs);
    for (int i = 0; i < inputs; ++i) {
      requests[i].request.id = "p-" + std::to_string(i + 1);
      requests[i].prompt_field = "inputs[" + std::to_string(i) + "].text";
    }
    auto scoring = std::make_shared<Call>(CallKind::kScore, std::move(requests),
                                          CallContext{.model = model_,
                                                      .model_index = 0,
                                                      .engines = engine_,
                                                      .permit = {},
                                                      .log = [this](RequestSummary summary) {
                                                        summaries_.push_back(std::move(summary));
                                                      }});
    scores_.clear();
    scoring->Start(listener_);
    return scoring;
  }
  void Logprobs(int input, const std::vector<float>& logprobs) {
    std::vector<serving::TokenLogprobs> tokens;
    for (const float logprob : logprobs) {
      tokens.push_back({.chosen = {.token = 1, .logprob = logprob}, .top = {}});
    }
    engine_.sinks[input]->OnPromptLogprobs(std::move(tokens));
  }
  // The event that is due after the chunks, which it gathers as a transport does.
  Call::Event Take(Call& scoring) {
    Call::Event event = scoring.Take();
    while (const auto* chunk = std::get_if<StreamChunk>(&event)) {
      AddChunk(*chunk, scores_);
      scoring.ChunkDone(/*delivered=*/true);
      event = scoring.Take();
    }
    return event;
  }
  bool NothingDue(Call& scoring) { return std::holds_alternative<std::monostate>(Take(scoring)); }
  Result<Scores> TakeEnd(Call& scoring) {
    const Call::Event event = Take(scoring);
    EXPECT_TRUE(std::holds_alternative<CallEnd>(event));
    if (const auto& error = std::get<CallEnd>(event).error) return *error;
    return scores_;
  }

  const ModelInfo model_ = SmallModelInfo();
  FakeEngineThread engine_;
  std::shared_ptr<CountingListener> listener_ = std::make_shared<CountingListener>();
  std::vector<RequestSummary> summaries_;
  Scores scores_;  // gathered of the last call
};

TEST_F(ScoringTest, GathersTheInputsInTheirOrder) {
  const auto scoring = Start(3);
  EXPECT_EQ(scoring->id(), "p-1");
  std::vector<std::string> ids;
  for (const serving::Request& one : engine_.submitted) ids.push_back(one.id);
  EXPECT_THAT(ids, ElementsAre("p-1", "p-2", "p-3"));
  for (const int input : {2, 0}) {
    engine_.sinks[input]->OnScheduled();
    EXPECT_TRUE(NothingDue(*scoring)) << "one may still be refused";
  }
  Logprobs(2, {-5});
  engine_.sinks[2]->OnFinish(Finished(serving::FinishReason::kLength));
  engine_.sinks[1]->OnScheduled();
  EXPECT_TRUE(std::holds_alternative<RequestAccepted>(Take(*scoring)));
  EXPECT_TRUE(NothingDue(*scoring));
  Logprobs(0, {-1});
  Logprobs(0, {-2, -3});
  engine_.sinks[0]->OnFinish(Finished(serving::FinishReason::kLength));
  EXPECT_TRUE(NothingDue(*scoring));
  engine_.sinks[1]->OnFinish(Finished(serving::FinishReason::kLength));
  const Result<Scores> end = TakeEnd(*scoring);
  ASSERT_TRUE(end.ok());
  ASSERT_THAT(end.value(), SizeIs(3));
  EXPECT_THAT(end.value()[0].logprobs, ElementsAre(-1, -2, -3));
  EXPECT_THAT(end.value()[1].logprobs, IsEmpty());
  EXPECT_THAT(end.value()[2].logprobs, ElementsAre(-5));
  EXPECT_TRUE(NothingDue(*scoring));
  EXPECT_THAT(engine_.cancelled(), IsEmpty());
  ASSERT_THAT(summaries_, SizeIs(1));
  EXPECT_EQ(summaries_[0].end, "scored");
  EXPECT_EQ(summaries_[0].usage.prompt_tokens, 9);
}

TEST_F(ScoringTest, OneThatFailsFailsTheCallAndCancelsTheOthers) {
  const auto scoring = Start(3);
  engine_.sinks[0]->OnFinish(Finished(serving::FinishReason::kLength));
  engine_.sinks[1]->OnFinish(Finished(serving::FinishReason::kFailed, "no finite log-probability"));
  EXPECT_THAT(engine_.cancelled(), testing::Contains("p-3"));
  EXPECT_TRUE(NothingDue(*scoring)) << "the engine still holds one";
  engine_.sinks[2]->OnFinish(Finished(serving::FinishReason::kCancelled));
  const Result<Scores> end = TakeEnd(*scoring);
  ASSERT_FALSE(end.ok());
  EXPECT_EQ(end.error().reason, "STEP_FAILED");
  EXPECT_EQ(end.error().metadata.at("request_id"), "p-2");
  EXPECT_THAT(summaries_, SizeIs(1));
}

TEST_F(ScoringTest, AnInputThatCannotBeHandedOverFailsTheCall) {
  engine_.room = 1;
  const auto scoring = Start(3);
  EXPECT_THAT(engine_.cancelled(), testing::Contains("p-1"));
  EXPECT_TRUE(NothingDue(*scoring)) << "the engine still holds one";
  engine_.sinks[0]->OnFinish(Finished(serving::FinishReason::kCancelled));
  EXPECT_EQ(TakeEnd(*scoring).error().reason, "STEP_FAILED");
  EXPECT_EQ(listener_->calls, 1);

  engine_.room = 1;  // as there are
  EXPECT_EQ(TakeEnd(*Start(2)).error().reason, "STEP_FAILED");
  EXPECT_THAT(summaries_, SizeIs(2));
}

TEST_F(ScoringTest, ARefusalOfOneRefusesTheCallWithoutAcceptance) {
  const auto scoring = Start(2);
  engine_.sinks[0]->OnScheduled();
  engine_.sinks[1]->OnRejected(serving::SubmitStatus::kNeverFits);
  engine_.sinks[0]->OnFinish(Finished(serving::FinishReason::kCancelled));
  const Result<Scores> end = TakeEnd(*scoring);
  ASSERT_FALSE(end.ok());
  EXPECT_EQ(end.error().code, ErrorCode::kInvalidArgument);
}

TEST_F(ScoringTest, ACancelCancelsAll) {
  const auto scoring = Start(2);
  scoring->Cancel();
  EXPECT_THAT(engine_.cancelled(), ElementsAre("p-1", "p-2"));
  for (const auto& sink : engine_.sinks)
    sink->OnFinish(Finished(serving::FinishReason::kCancelled));
  EXPECT_EQ(TakeEnd(*scoring).error().code, ErrorCode::kCancelled);
  scoring->Cancel();
  EXPECT_THAT(engine_.cancelled(), SizeIs(2));
}

TEST_F(ScoringTest, LetsTheListenerGoAtTheEnd) {
  const std::weak_ptr<CountingListener> listener = listener_;
  const auto scoring = Start(1);
  listener_.reset();
  engine_.sinks[0]->OnFinish(Finished(serving::FinishReason::kLength));
  EXPECT_TRUE(listener.expired());
}

}  // namespace
}  // namespace triptych::server::scoring_test
