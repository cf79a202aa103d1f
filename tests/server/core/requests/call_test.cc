#include "server/core/requests/call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/server/core/fake_engine_thread.h"
#include "tests/server/core/model_info.h"

namespace triptych::server::call_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

serving::Completion Finished(serving::FinishReason reason, const std::string& error = "",
                             int32_t choice = 0) {
  serving::Completion completion;
  completion.choice = choice;
  completion.reason = reason;
  completion.error = error;
  return completion;
}

serving::Delta Token(int32_t token, const std::string& text = "", int32_t choice = 0) {
  return {.choice = choice, .token = token, .logprobs = {}, .text = text};
}

class CallTest : public testing::Test {
 protected:
  // A request of `prompt`.
  std::shared_ptr<Call> Make(const std::string& prompt = "x", int64_t max_new_tokens = 10,
                             int32_t choices = 1, const std::string& echo = "") {
    std::vector<ValidRequest> requests(1);
    ValidRequest& valid = requests[0];
    valid.request.id = "p-7";
    valid.request.client = "somebody";
    valid.request.prompt.assign(prompt.begin(), prompt.end());
    valid.request.max_new_tokens = max_new_tokens;
    valid.request.choices = choices;
    valid.prompt_field = "text";
    valid.echo = echo;
    return std::make_shared<Call>(CallKind::kGenerate, std::move(requests),
                                  CallContext{.model = model_,
                                              .model_index = 0,
                                              .engines = engine_,
                                              .permit = {},
                                              .log = [this](RequestSummary summary) {
                                                summaries_.push_back(std::move(summary));
                                              }});
  }
  // The same, started.
  std::shared_ptr<Call> Start(const std::string& prompt = "x", int64_t max_new_tokens = 10,
                              int32_t choices = 1, const std::string& echo = "") {
    auto generation = Make(prompt, max_new_tokens, choices, echo);
    generation->Start(listener_);
    return generation;
  }

  // The chunk that is due, which there must be.
  static StreamChunk TakeChunk(Call& generation) {
    Call::Event event = generation.Take();
    EXPECT_TRUE(std::holds_alternative<StreamChunk>(event));
    return std::get<StreamChunk>(std::move(event));
  }
  // Why it ended, which it must have done.
  static std::optional<Error> TakeEnd(Call& generation) {
    const Call::Event event = generation.Take();
    EXPECT_TRUE(std::holds_alternative<CallEnd>(event));
    return std::get<CallEnd>(event).error;
  }
  static bool NothingDue(Call& generation) {
    return std::holds_alternative<std::monostate>(generation.Take());
  }

  const ModelInfo model_ = SmallModelInfo();
  FakeEngineThread engine_;
  std::shared_ptr<CountingListener> listener_ = std::make_shared<CountingListener>();
  std::vector<RequestSummary> summaries_;  // logged
};

TEST_F(CallTest, ARequestThatCannotBeHandedOverFailsAndKeepsNoListener) {
  engine_.room = 0;
  const auto generation = Make();
  generation->Start(listener_);
  EXPECT_EQ(listener_->calls, 1);
  EXPECT_EQ(TakeEnd(*generation)->reason, "STEP_FAILED");
  EXPECT_TRUE(NothingDue(*generation));
  EXPECT_EQ(engine_.cancels, 0);
  ASSERT_THAT(summaries_, SizeIs(1));
  EXPECT_EQ(summaries_[0].outcome, Outcome::kFailed);
  const std::weak_ptr<CountingListener> listener = listener_;
  listener_.reset();
  EXPECT_TRUE(listener.expired());
}

TEST_F(CallTest, HandsTheRequestToTheEngine) {
  const auto generation = Start("abc", 9);
  ASSERT_THAT(engine_.submitted, SizeIs(1));
  EXPECT_EQ(engine_.submitted[0].id, "p-7");
  EXPECT_THAT(engine_.submitted[0].prompt, ElementsAre('a', 'b', 'c'));
  EXPECT_EQ(generation->id(), "p-7");
  EXPECT_TRUE(NothingDue(*generation));
}

TEST_F(CallTest, MergesWhatComesWhileAChunkIsInFlight) {
  const auto generation = Start();
  engine_.sink().OnDelta(Token(1, "a"));
  EXPECT_EQ(listener_->calls, 1);
  EXPECT_EQ(TakeChunk(*generation).text, "a");
  for (int32_t token = 2; token <= 4; ++token) {
    engine_.sink().OnDelta(Token(token, std::to_string(token)));
    EXPECT_TRUE(NothingDue(*generation));
  }
  generation->ChunkDone(true);
  const StreamChunk merged = TakeChunk(*generation);
  EXPECT_EQ(merged.text, "234");
  EXPECT_THAT(merged.tokens, ElementsAre(2, 3, 4));
  generation->ChunkDone(true);
  EXPECT_TRUE(NothingDue(*generation));
}

TEST_F(CallTest, EndsOnceWithTheCompletionInItsLastChunk) {
  const auto generation = Start();
  engine_.sink().OnDelta(Token(1, "a"));
  serving::Completion completion = Finished(serving::FinishReason::kStop);
  completion.stop = "b";
  engine_.sink().OnFinish(completion);
  const StreamChunk last = TakeChunk(*generation);
  EXPECT_EQ(last.text, "a");
  ASSERT_TRUE(last.completion.has_value());
  EXPECT_EQ(last.completion->stop, "b");
  EXPECT_TRUE(NothingDue(*generation));
  generation->ChunkDone(true);
  EXPECT_EQ(TakeEnd(*generation), std::nullopt);
  EXPECT_TRUE(NothingDue(*generation));
}

TEST_F(CallTest, IsAcceptedOnceAndBeforeItsChunks) {
  const auto generation = Start();
  EXPECT_TRUE(NothingDue(*generation));
  engine_.sink().OnScheduled();
  EXPECT_EQ(listener_->calls, 1);
  engine_.sink().OnDelta(Token(1, "a"));
  EXPECT_TRUE(std::holds_alternative<RequestAccepted>(generation->Take()));
  EXPECT_EQ(TakeChunk(*generation).text, "a");
  EXPECT_TRUE(NothingDue(*generation));
}

TEST_F(CallTest, ARefusalIsNeverAccepted) {
  for (const serving::SubmitStatus status :
       {serving::SubmitStatus::kQueueFull, serving::SubmitStatus::kQueueTimeout,
        serving::SubmitStatus::kPromptTooLong, serving::SubmitStatus::kStopping}) {
    const auto generation = Start();
    engine_.sink().OnRejected(status);
    EXPECT_TRUE(TakeEnd(*generation).has_value());
    EXPECT_TRUE(NothingDue(*generation));
  }
}

TEST_F(CallTest, EachChunkIsOfOneChoiceAndTheStreamEndsAfterTheLast) {
  const auto generation = Start("x", 10, 3);
  engine_.sink().OnDelta(Token(1, "a", 0));  // taken at once
  EXPECT_EQ(TakeChunk(*generation).choice, 0);
  engine_.sink().OnDelta(Token(2, "b", 2));
  engine_.sink().OnDelta(Token(3, "c", 1));
  engine_.sink().OnDelta(Token(4, "d", 2));
  engine_.sink().OnFinish(Finished(serving::FinishReason::kStop, "", 1));
  std::vector<std::string> texts;
  std::vector<int32_t> choices;
  for (int i = 0; i < 2; ++i) {
    generation->ChunkDone(true);
    const StreamChunk chunk = TakeChunk(*generation);
    choices.push_back(chunk.choice);
    texts.push_back(chunk.text);
    EXPECT_EQ(chunk.completion.has_value(), chunk.choice == 1);
  }
  EXPECT_THAT(choices, ElementsAre(2, 1));
  EXPECT_THAT(texts, ElementsAre("bd", "c"));
  generation->ChunkDone(true);
  EXPECT_TRUE(NothingDue(*generation)) << "two choices go on";
  engine_.sink().OnFinish(Finished(serving::FinishReason::kLength, "", 0));
  EXPECT_EQ(TakeChunk(*generation).completion->choice, 0);
  generation->ChunkDone(true);
  EXPECT_TRUE(NothingDue(*generation));
  generation->Cancel();
  EXPECT_EQ(engine_.cancels, 1) << "one goes on, and can be cancelled";
  engine_.sink().OnFinish(Finished(serving::FinishReason::kStop, "", 2));
  EXPECT_TRUE(TakeChunk(*generation).completion.has_value());
  generation->ChunkDone(true);
  EXPECT_EQ(TakeEnd(*generation), std::nullopt);
  ASSERT_THAT(summaries_, SizeIs(1));
  EXPECT_EQ(summaries_[0].end, "2 stop, 1 length");
}

TEST_F(CallTest, OneChoiceThatFailsEndsTheOthers) {
  const auto generation = Start("x", 10, 2);
  engine_.sink().OnFinish(Finished(serving::FinishReason::kFailed, "no finite logit", 1));
  EXPECT_EQ(engine_.cancels, 1);
  EXPECT_EQ(TakeEnd(*generation)->reason, "STEP_FAILED");
  engine_.sink().OnDelta(Token(1, "a", 0));
  engine_.sink().OnFinish(Finished(serving::FinishReason::kCancelled, "", 0));
  EXPECT_TRUE(NothingDue(*generation));
  EXPECT_THAT(summaries_, SizeIs(1));
}

TEST_F(CallTest, TheTextOfEveryChoiceBeginsWithTheEcho) {
  const auto generation = Start("x", 10, 2, "echo ");
  engine_.sink().OnDelta(Token(1, "a", 0));
  EXPECT_EQ(TakeChunk(*generation).text, "echo a");
  generation->ChunkDone(true);
  engine_.sink().OnDelta(Token(1, "b", 0));
  EXPECT_EQ(TakeChunk(*generation).text, "b");
  generation->ChunkDone(true);
  engine_.sink().OnFinish(Finished(serving::FinishReason::kStop, "", 1));  // without a token
  EXPECT_EQ(TakeChunk(*generation).text, "echo ");
}

TEST_F(CallTest, LogProbabilitiesOfThePromptGoOutAsTheyCome) {
  const auto generation = Start();
  engine_.sink().OnPromptLogprobs({{.chosen = {.token = 1, .logprob = -1}, .top = {}}});
  const StreamChunk chunk = TakeChunk(*generation);
  ASSERT_THAT(chunk.prompt_logprobs, SizeIs(1));
  EXPECT_EQ(chunk.prompt_logprobs[0].chosen.logprob, -1);
  EXPECT_THAT(chunk.tokens, SizeIs(0));
}

TEST_F(CallTest, EndsWithOneSummary) {
  const auto generation = Start("abc");
  serving::Completion completion = Finished(serving::FinishReason::kStop);
  completion.usage.prompt_tokens = 3;
  completion.usage.cached_prompt_tokens = 2;
  completion.usage.generated_tokens = 9;
  completion.usage.drafted_tokens = 6;
  completion.usage.accepted_tokens = 4;
  completion.usage.queue_time = std::chrono::milliseconds(1);
  completion.usage.first_token_time = std::chrono::microseconds(3500);
  completion.usage.mean_wait = std::chrono::milliseconds(500);
  completion.usage.longest_wait = std::chrono::microseconds(700250);
  completion.usage.total_time = std::chrono::seconds(4);
  completion.usage.preemptions = 1;
  completion.usage.kv_cache.used_bytes = 300;
  completion.usage.kv_cache.peak_allocated_bytes = 512;
  EXPECT_EQ(generation->load(), std::nullopt);
  completion.load.waiting = 5;
  engine_.sink().OnFinish(completion);
  EXPECT_EQ(generation->load().value().waiting, 5);
  ASSERT_THAT(summaries_, SizeIs(1));
  EXPECT_EQ(summaries_[0].Text(),
            "request p-7 of somebody on small: stop; tokens: prompt 3, cached 2, generated 9, "
            "drafted 6, accepted 4; ms: queue 1.0, first token 3.5, between tokens 500.00, at most "
            "700.25, end 4000.0; "
            "preemptions 1; cache bytes: used 300, peak 512");
  summaries_[0].traceparent = "00-t-p-01";
  EXPECT_TRUE(summaries_[0].Text().ends_with("; traceparent 00-t-p-01"));
  summaries_[0].client = "a\"\xff\n";
  EXPECT_EQ(summaries_[0].JsonMembers(),
            R"("message":"request p-7 of a\"\\xff\\x0a on small: stop","request_id":"p-7",)"
            R"("client":"a\"\\xff\\x0a","model":"small","outcome":"stop","end":"stop",)"
            R"("prompt_tokens":3,"cached_prompt_tokens":2,"generated_tokens":9,)"
            R"("drafted_tokens":6,"accepted_draft_tokens":4,"queue_ms":1.0,)"
            R"("time_to_first_token_ms":3.5,"inter_token_mean_ms":500.0,)"
            R"("inter_token_max_ms":700.25,"end_to_end_ms":4000.0,"preemptions":1,)"
            R"("kv_cache_used_bytes":300,"kv_cache_peak_allocated_bytes":512,)"
            R"("traceparent":"00-t-p-01")");
  summaries_[0].usage.longest_wait = {};
  EXPECT_THAT(summaries_[0].Text(), HasSubstr("first token 3.5, end 4000.0;"));
  EXPECT_THAT(summaries_[0].JsonMembers(), Not(HasSubstr("inter_token")));
  summaries_[0].usage.first_token_time.reset();
  EXPECT_THAT(summaries_[0].Text(), HasSubstr("ms: queue 1.0, end 4000.0;"));
  EXPECT_THAT(summaries_[0].JsonMembers(), Not(HasSubstr("first_token")));

  Start();
  engine_.sink().OnRejected(serving::SubmitStatus::kQueueFull);
  ASSERT_THAT(summaries_, SizeIs(2));
  EXPECT_TRUE(summaries_[1].refused);
  EXPECT_EQ(summaries_[1].outcome, Outcome::kRefused);
  EXPECT_EQ(summaries_[1].JsonMembers(),
            R"("message":"request p-7 of somebody on small: QUEUE_FULL","request_id":"p-7",)"
            R"("client":"somebody","model":"small","outcome":"refused","end":"QUEUE_FULL")");
  EXPECT_EQ(summaries_[1].Text(), "request p-7 of somebody on small: QUEUE_FULL");
  RequestSummary forged;
  forged.client = "a\nrequest";
  forged.refused = true;
  EXPECT_THAT(forged.Text(), testing::Not(testing::HasSubstr("\n"))) << "one line";
}

TEST_F(CallTest, EndsWithOneOutcome) {
  const auto outcome = [&](const std::vector<serving::FinishReason>& reasons, bool cancel = false) {
    summaries_.clear();
    const auto generation = Start("abc", 10, static_cast<int32_t>(reasons.size()));
    if (cancel) generation->Cancel();
    for (const serving::FinishReason reason : reasons)
      engine_.sink().OnFinish(Finished(reason, "why"));
    EXPECT_THAT(summaries_, SizeIs(1));
    return summaries_.at(0).outcome;
  };
  EXPECT_EQ(outcome({serving::FinishReason::kStop}), Outcome::kStop);
  EXPECT_EQ(outcome({serving::FinishReason::kStop, serving::FinishReason::kLength}),
            Outcome::kLength);
  EXPECT_EQ(outcome({serving::FinishReason::kFailed, serving::FinishReason::kStop}),
            Outcome::kFailed);
  EXPECT_EQ(outcome({serving::FinishReason::kCancelled}, /*cancel=*/true), Outcome::kCancelled);
  EXPECT_EQ(outcome({serving::FinishReason::kCancelled}), Outcome::kCancelled)
      << "at the server's end";
  Start();
  engine_.sink().OnRejected(serving::SubmitStatus::kNeverFits);
  EXPECT_EQ(summaries_.back().outcome, Outcome::kInvalid);
  Start();
  engine_.sink().OnRejected(serving::SubmitStatus::kStopping);
  EXPECT_EQ(summaries_.back().outcome, Outcome::kRefused);
  Start("x", 10);
  engine_.sink().OnDelta(Token(1, std::string(kMaxUnreadBytes, 'a')));
  engine_.sink().OnFinish(Finished(serving::FinishReason::kCancelled));
  EXPECT_EQ(summaries_.back().outcome, Outcome::kSlowReader);
}

TEST_F(CallTest, TheEngineKeepsTheCall) {
  const std::weak_ptr<Call> call = Start();
  EXPECT_FALSE(call.expired());
  engine_.sinks.clear();
  EXPECT_TRUE(call.expired());
}

TEST_F(CallTest, LetsTheListenerGoWithTheEnginesLastCall) {
  const std::weak_ptr<CountingListener> listener = listener_;
  const auto finished = Start();
  listener_.reset();
  engine_.sink().OnDelta(Token(1));
  EXPECT_FALSE(listener.expired());
  engine_.sink().OnFinish(Finished(serving::FinishReason::kLength));
  EXPECT_TRUE(listener.expired());
}

TEST_F(CallTest, AClientThatDoesNotReadIsCutOff) {
  const auto generation = Start();
  const std::string text(kMaxUnreadBytes * 2 / 9, 'a');  // and the memory of vectors
  engine_.sink().OnDelta(Token(1, text));
  TakeChunk(*generation);  // and is not done with it
  for (int i = 0; i < 4; ++i) engine_.sink().OnDelta(Token(1, text));
  EXPECT_EQ(engine_.cancels, 0) << "what is in flight does not count";
  engine_.sink().OnDelta(Token(1, text));
  EXPECT_EQ(engine_.cancels, 1);
  engine_.sink().OnDelta(Token(1, text));
  engine_.sink().OnFinish(Finished(serving::FinishReason::kCancelled));
  EXPECT_EQ(engine_.cancels, 1);

  generation->ChunkDone(true);
  const std::optional<Error> error = TakeEnd(*generation);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(error->reason, "SLOW_READER");
  EXPECT_EQ(error->metadata.at("request_id"), "p-7");
}

TEST_F(CallTest, ACancelReachesTheEngineUntilItIsDone) {
  const auto generation = Start();
  engine_.sink().OnDelta(Token(1, "a"));
  generation->Cancel();
  EXPECT_EQ(engine_.cancels, 1);
  engine_.sink().OnFinish(Finished(serving::FinishReason::kCancelled));
  generation->Cancel();
  EXPECT_EQ(engine_.cancels, 1);
  EXPECT_EQ(TakeChunk(*generation).text, "a");
  generation->ChunkDone(true);
  EXPECT_EQ(TakeEnd(*generation)->code, ErrorCode::kCancelled);
  generation->Cancel();
  EXPECT_TRUE(NothingDue(*generation));
}

TEST_F(CallTest, ACancelAfterTheFinishChangesNothing) {
  const auto generation = Start();
  engine_.sink().OnFinish(Finished(serving::FinishReason::kLength));
  generation->Cancel();
  EXPECT_EQ(engine_.cancels, 0);
  EXPECT_TRUE(TakeChunk(*generation).completion.has_value());
  generation->ChunkDone(true);
  EXPECT_EQ(TakeEnd(*generation), std::nullopt);
}

TEST_F(CallTest, AChunkThatCannotBeDeliveredEndsIt) {
  const auto generation = Start();
  engine_.sink().OnDelta(Token(1, "a"));
  TakeChunk(*generation);
  engine_.sink().OnDelta(Token(2, "b"));
  generation->ChunkDone(false);
  EXPECT_EQ(engine_.cancels, 1);
  EXPECT_EQ(TakeEnd(*generation)->code, ErrorCode::kCancelled);
  engine_.sink().OnDelta(Token(3, "c"));
  engine_.sink().OnFinish(Finished(serving::FinishReason::kCancelled));
  EXPECT_TRUE(NothingDue(*generation));
}

TEST_F(CallTest, ACompletionThatCannotBeDeliveredIsNoSuccess) {
  const auto generation = Start();
  engine_.sink().OnFinish(Finished(serving::FinishReason::kLength));
  TakeChunk(*generation);
  generation->ChunkDone(false);
  EXPECT_EQ(engine_.cancels, 0);
  EXPECT_EQ(TakeEnd(*generation)->code, ErrorCode::kCancelled);
}

TEST_F(CallTest, TheEndOfTheServerCancelsLiveCalls) {
  const auto generation = Start();
  engine_.sink().OnFinish(Finished(serving::FinishReason::kCancelled));
  const std::optional<Error> error = TakeEnd(*generation);
  EXPECT_EQ(error->code, ErrorCode::kUnavailable);
  EXPECT_EQ(error->reason, "DRAINING");
}

TEST_F(CallTest, AFailureIsTold) {
  const auto generation = Start();
  engine_.sink().OnDelta(Token(1, "a"));
  engine_.sink().OnFinish(Finished(serving::FinishReason::kFailed, "no finite logit"));
  EXPECT_FALSE(TakeChunk(*generation).completion.has_value());
  generation->ChunkDone(true);
  const std::optional<Error> error = TakeEnd(*generation);
  EXPECT_EQ(error->code, ErrorCode::kInternal);
  EXPECT_EQ(error->Message(), "no finite logit");
  EXPECT_EQ(error->reason, "STEP_FAILED");
  EXPECT_EQ(error->metadata.at("request_id"), "p-7");
}

TEST_F(CallTest, ARejectionIsItsEnd) {
  const auto generation = Start(std::string(40, 'a'));
  engine_.sink().OnRejected(serving::SubmitStatus::kNeverFits);
  EXPECT_EQ(listener_->calls, 1);
  const std::optional<Error> error = TakeEnd(*generation);
  EXPECT_EQ(error->code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(error->field, "text");
  EXPECT_TRUE(NothingDue(*generation));
  generation->Cancel();
  EXPECT_EQ(engine_.cancels, 0);
}

// A transport whose writes are done on another thread some time later.
class ThreadedTransport final : public CallListener {
 public:
  explicit ThreadedTransport(Call& generation) : generation_(generation) {}

  void OnReady() override { Advance(); }

  // Ends writes until the generation has ended.
  void Run() {
    while (!ended_) {
      if (!writing_.exchange(false)) {
        std::this_thread::yield();
        continue;
      }
      generation_.ChunkDone(true);
      Advance();
    }
  }

  std::vector<int32_t> tokens;  // of chunks in flight: one thread at a time
  std::atomic<int> acceptances = 0;
  std::atomic<int> completions = 0;
  std::atomic<int> ends = 0;
  std::optional<Error> error;

 private:
  void Advance() {
    Call::Event event = generation_.Take();
    if (std::holds_alternative<RequestAccepted>(event)) {
      EXPECT_EQ(++acceptances, 1);
      event = generation_.Take();
    }
    if (const auto* chunk = std::get_if<StreamChunk>(&event)) {
      EXPECT_EQ(completions, 0) << "a chunk after the last one";
      tokens.insert(tokens.end(), chunk->tokens.begin(), chunk->tokens.end());
      if (chunk->completion) ++completions;
      EXPECT_FALSE(writing_.exchange(true)) << "two writes in flight";
    } else if (const auto* end = std::get_if<CallEnd>(&event)) {
      error = end->error;
      ++ends;
      ended_ = true;
    }
  }

  Call& generation_;
  std::atomic<bool> writing_ = false;
  std::atomic<bool> ended_ = false;
};

TEST_F(CallTest, EngineTransportAndCancelAtOnce) {
  constexpr int kTokens = 200;
  for (int round = 0; round < 100; ++round) {
    FakeEngineThread engine;
    std::vector<ValidRequest> requests(1);
    requests[0].request.id = "7";
    const auto generation = std::make_shared<Call>(
        CallKind::kGenerate, std::move(requests),
        CallContext{.model = model_, .model_index = 0, .engines = engine, .permit = {}, .log = {}});
    const auto transport = std::make_shared<ThreadedTransport>(*generation);
    generation->Start(transport);
    const bool cancels = round % 2 == 1;

    std::thread engine_thread([&] {
      engine.sink().OnScheduled();
      for (int32_t i = 0; i < kTokens; ++i) {
        if (engine.cancels > 0) {
          engine.sink().OnFinish(Finished(serving::FinishReason::kCancelled));
          return;
        }
        engine.sink().OnDelta(Token(i));
      }
      engine.sink().OnFinish(Finished(serving::FinishReason::kLength));
    });
    std::thread writer([&] { transport->Run(); });
    std::thread canceller([&] {
      if (cancels) generation->Cancel();
    });
    engine_thread.join();
    writer.join();
    canceller.join();

    EXPECT_EQ(transport->ends, 1);
    for (size_t i = 0; i < transport->tokens.size(); ++i) {
      ASSERT_EQ(transport->tokens[i], static_cast<int32_t>(i));
    }
    if (transport->error) {
      EXPECT_TRUE(cancels);
      EXPECT_EQ(transport->error->code, ErrorCode::kCancelled);
      EXPECT_EQ(transport->completions, 0);
    } else {
      EXPECT_THAT(transport->tokens, SizeIs(kTokens));
      EXPECT_EQ(transport->completions, 1);
    }
  }
}

}  // namespace
}  // namespace triptych::server::call_test
