// Output of the engine by a grammar, on a model without weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/token_grammar.h"
#include "engine/serving/engine.h"
#include "tests/support/fake_model.h"
#include "tests/support/recording_sink.h"
#include "tests/support/regex_grammar.h"
#include "tests/support/tokenizer.h"

namespace triptych::serving::grammar_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// A sampled request whose output matches `regex`.
Request Matching(const std::string& id, std::string_view regex) {
  Request request;
  request.id = id;
  for (const char c : "prompt of " + id) request.prompt.push_back(static_cast<unsigned char>(c));
  request.max_new_tokens = 100;
  request.seed = 7;
  request.grammar = RegexGrammar(regex);
  return request;
}

// The sinks of requests that run together.
std::vector<std::shared_ptr<RecordingSink>> Outputs(const std::vector<Request>& requests,
                                                    FakeModel::Shape shape = {
                                                        .max_positions = 200}) {
  Engine engine(std::make_unique<FakeModel>(shape), TestTokenizer(), {});
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (const Request& request : requests) {
    engine.Submit(request, sinks.emplace_back(std::make_shared<RecordingSink>()));
  }
  while (engine.Step()) {
  }
  return sinks;
}

std::shared_ptr<RecordingSink> Output(const Request& request) { return Outputs({request})[0]; }

constexpr std::string_view kList = "(?:[a-c]{3},){5}end(?:\xc3\xa9)?";

TEST(EngineGrammar, OutputIsATextOfTheGrammar) {
  const auto sink = Output(Matching("a", kList));
  ASSERT_TRUE(sink->completion);
  EXPECT_EQ(sink->completion->reason, FinishReason::kStop);
  EXPECT_THAT(sink->text, testing::MatchesRegex("([abc][abc][abc],){5}end(\xc3\xa9)?"));
}

TEST(EngineGrammar, OutputIsTheSameInEveryBatch) {
  std::vector<Request> requests;
  std::vector<std::string> alone;
  for (int i = 0; i < 6; ++i) {
    Request request = Matching(std::to_string(i), i % 2 == 0 ? kList : "[x-z]{20}");
    if (i % 3 == 2) request.grammar = nullptr;
    alone.push_back(Output(request)->text);
    requests.push_back(std::move(request));
  }
  // Few blocks, so that sequences are preempted and computed again.
  const auto sinks = Outputs(requests, {.max_positions = 200, .blocks = 30});
  int64_t preemptions = 0;
  for (size_t i = 0; i < sinks.size(); ++i) {
    EXPECT_EQ(sinks[i]->text, alone[i]) << i;
    preemptions += sinks[i]->completion->usage.preemptions;
  }
  EXPECT_GT(preemptions, 0);
}

TEST(EngineGrammar, ASharedPrefixChangesNothing) {
  Engine engine(std::make_unique<FakeModel>(FakeModel::Shape{.max_positions = 200}),
                TestTokenizer(), {});
  std::vector<std::string> texts;
  for (const char* const id : {"a", "b"}) {
    Request request = Matching("the same", kList);
    request.id = id;
    const auto sink = std::make_shared<RecordingSink>();
    engine.Submit(request, sink);
    while (engine.Step()) {
    }
    texts.push_back(sink->text);
    EXPECT_EQ(sink->completion->usage.cached_prompt_tokens > 0, texts.size() == 2);
  }
  EXPECT_EQ(texts[0], texts[1]);
}

TEST(EngineGrammar, EveryChoiceHasItsOwnState) {
  class Sink final : public RequestSink {
   public:
    void OnRejected(SubmitStatus) override { FAIL(); }
    void OnDelta(Delta delta) override { texts[delta.choice] += delta.text; }
    void OnFinish(Completion completion) override {
      EXPECT_EQ(completion.reason, FinishReason::kStop);
    }
    std::map<int32_t, std::string> texts;
  };
  Request request = Matching("a", "[ab]{3}|[cd]{20}");
  request.choices = 8;
  Engine engine(std::make_unique<FakeModel>(FakeModel::Shape{.max_positions = 200}),
                TestTokenizer(), {});
  const auto sink = std::make_shared<Sink>();
  engine.Submit(request, sink);
  while (engine.Step()) {
  }
  ASSERT_EQ(sink->texts.size(), 8);
  for (const auto& [choice, text] : sink->texts) {
    EXPECT_THAT(text, testing::AnyOf(testing::MatchesRegex("[ab][ab][ab]"),
                                     testing::MatchesRegex("[cd]{20}")));
    request.choices = 1;
    request.seed = ChoiceSeed(7, choice);
    EXPECT_EQ(Output(request)->text, text);
  }
}

TEST(EngineGrammar, EndsOnlyWhereItMay) {
  Request request = Matching("a", "[ab]{10}");
  request.sampling.temperature = 0;
  request.sampling.logit_bias = {{kEndToken, 1000.0F}, {'b', 5.0F}};
  request.stop_tokens = {'b'};
  // The end token comes where it may, a stop token of the grammar's text only where it may end.
  EXPECT_EQ(Output(request)->text, "aaaaaaaaaa");
  request.grammar = RegexGrammar("b[ab]{0,10}");
  request.stop_tokens = {};
  EXPECT_EQ(Output(request)->text, "b");
  request.min_new_tokens = 4;
  EXPECT_EQ(Output(request)->text, "bbbb");
  request.grammar = RegexGrammar("bb");
  const auto sink = Output(request);
  EXPECT_EQ(sink->text, "bb") << "the grammar ends before min_new_tokens";
  EXPECT_EQ(sink->completion->reason, FinishReason::kStop);
}

TEST(EngineGrammar, EndsWithoutAnEndTokenToo) {
  Request request = Matching("a", "ab?");
  request.ignore_eos = true;
  request.sampling.allowed = {'a'};
  const auto sink = Output(request);
  EXPECT_EQ(sink->text, "a");
  EXPECT_EQ(sink->completion->reason, FinishReason::kStop);
}

TEST(EngineGrammar, FailsIfNoTokenContinuesIt) {
  Request request = Matching("a", "abc");
  request.sampling.allowed = {'a', 'c'};
  const auto sink = Output(request);
  EXPECT_EQ(sink->completion->reason, FinishReason::kFailed);
  EXPECT_THAT(sink->completion->error, HasSubstr("continues a text of the grammar"));
}

TEST(EngineGrammar, StopStringsAndLengthsEndItAnywhere) {
  Request request = Matching("a", "(?:ab){3}, more");
  request.stop = {"ba"};
  EXPECT_EQ(Output(request)->text, "a");
  request.stop = {", mo", "x"};
  EXPECT_EQ(Output(request)->text, "ababab");
  request.stop = {"more of this"};
  EXPECT_EQ(Output(request)->text, "ababab, more") << "what a stop string held back is text";
  request.stop = {};
  request.max_new_tokens = 5;
  const auto sink = Output(request);
  EXPECT_THAT(sink->text, StartsWith("ababa"));
  EXPECT_EQ(sink->completion->reason, FinishReason::kLength);
}

TEST(EngineGrammar, LogprobsAreTheModelsOwn) {
  Request request = Matching("a", "\x01");
  request.logprobs = 1;
  const auto sink = Output(request);
  ASSERT_EQ(sink->logprobs.size(), 1);
  EXPECT_LT(sink->logprobs[0].chosen.logprob, std::log(0.01));
  EXPECT_NE(sink->logprobs[0].top[0].token, 1);
}

TEST(EngineGrammar, AModelOfLikelyTokensComputesWholeRows) {
  Request request = Matching("a", kList);
  request.sampling.temperature = 0;
  const auto sinks = Outputs({request}, {.max_positions = 200, .likely_tokens = 8});
  EXPECT_EQ(sinks[0]->text, Output(request)->text);
}

}  // namespace
}  // namespace triptych::serving::grammar_test
