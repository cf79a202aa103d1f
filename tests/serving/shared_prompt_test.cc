// Tests of sharing among sequences: prefixes of prompts, and the prompt of several choices. On the
// fake model, whose tokens depend on every row of the last 64 positions and on how it was computed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/serving/engine.h"
#include "tests/support/fake_model.h"
#include "tests/support/tokenizer.h"

namespace triptych::serving::shared_prompt_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Sink that records the output of a request with several choices.
struct ChoicesSink final : RequestSink {
  void OnRejected(SubmitStatus status) override { rejected = status; }
  void OnScheduled() override { ++scheduled; }
  void OnPromptLogprobs(std::vector<TokenLogprobs> more) override {
    prompt_logprobs += more.size();
  }
  void OnDelta(Delta delta) override {
    EXPECT_FALSE(completions.contains(delta.choice)) << "after its end";
    tokens[delta.choice].push_back(delta.token);
  }
  void OnFinish(Completion completion) override {
    EXPECT_TRUE(completions.emplace(completion.choice, completion).second) << "ended twice";
  }

  std::optional<SubmitStatus> rejected;
  int scheduled = 0;
  size_t prompt_logprobs = 0;
  std::map<int32_t, std::vector<int32_t>> tokens;
  std::map<int32_t, Completion> completions;
};

// Hides in its info that prompt rows differ from generated rows: wrong sharing must show.
class DeceivingModel final : public ModelBackend {
 public:
  explicit DeceivingModel(const FakeModel::Shape& shape) : model_(shape), info_(model_.info()) {
    info_.expand_from.reset();
  }
  std::span<const float> Step(const StepInput& step) override { return model_.Step(step); }
  const BackendInfo& info() const override { return info_; }

 private:
  FakeModel model_;
  BackendInfo info_;
};

class SharedPromptTest : public testing::Test {
 protected:
  static constexpr FakeModel::Shape kShape = {.max_positions = 100};

  static std::unique_ptr<Engine> MakeEngine(const FakeModel::Shape& shape = kShape,
                                            const EngineOptions& options = {}) {
    return std::make_unique<Engine>(std::make_unique<FakeModel>(shape), TestTokenizer(), options);
  }

  static Request Make(std::vector<int32_t> prompt, int64_t max_new_tokens) {
    static int requests = 0;
    Request request;
    request.id = std::to_string(++requests);
    request.prompt = std::move(prompt);
    request.max_new_tokens = max_new_tokens;
    request.sampling.temperature = 0;
    request.ignore_eos = true;
    return request;
  }
  static std::vector<int32_t> Tokens(int64_t count, int32_t first = 1) {
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>(first + i % 200));
    return tokens;
  }
  static std::vector<int32_t> Cold(const Request& request, const FakeModel::Shape& shape = kShape) {
    std::vector<int32_t> tokens = request.prompt, generated;
    for (int64_t i = 0; i < request.max_new_tokens; ++i) {
      generated.push_back(FakeModel::Next(tokens, shape, std::ssize(request.prompt)));
      tokens.push_back(generated.back());
    }
    return generated;
  }

  static std::shared_ptr<ChoicesSink> Submit(Engine& engine, const Request& request) {
    const auto sink = std::make_shared<ChoicesSink>();
    engine.Submit(request, sink);
    return sink;
  }
  static std::shared_ptr<ChoicesSink> Run(Engine& engine, const Request& request) {
    const auto sink = Submit(engine, request);
    while (engine.Step()) {
    }
    return sink;
  }
  static std::vector<int32_t> Join(std::vector<int32_t> a, const std::vector<int32_t>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }
};

TEST_F(SharedPromptTest, AnEqualPrefixIsFoundAndNotComputed) {
  const auto engine = MakeEngine();
  const Request first = Make(Tokens(23), 4);
  EXPECT_EQ(Run(*engine, first)->completions.at(0).usage.cached_prompt_tokens, 0);
  // 20 positions in full blocks, equal to the first request's; then a different end.
  const Request second = Make(Join(Tokens(21), {9, 9, 9}), 4);
  const auto sink = Run(*engine, second);
  EXPECT_EQ(sink->completions.at(0).usage.cached_prompt_tokens, 20);
  EXPECT_EQ(sink->tokens.at(0), Cold(second));
  const RequestCounts counts = engine->Stats().requests;
  EXPECT_EQ(counts.finished, 2);
  EXPECT_EQ(counts.prompt_tokens, 47);
  EXPECT_EQ(counts.cached_prompt_tokens, 20);
}

TEST_F(SharedPromptTest, PrefixHitsAfterARowlessAdmissionCount) {
  FakeModel::Shape shape = kShape;
  shape.blocks = 8;
  const auto engine = MakeEngine(shape, {.max_batch_tokens = 2});
  Run(*engine, Make(Tokens(11), 1));
  Submit(*engine, Make(Tokens(4, 100), 9));
  Submit(*engine, Make(Tokens(8, 150), 1));
  // Is admitted, gets no row because of the other prompt, and is preempted before it gets one.
  const auto sink = Submit(*engine, Make(Join(Tokens(11), Tokens(9, 50)), 1));
  while (engine->Step()) {
  }
  const RequestUsage& usage = sink->completions.at(0).usage;
  EXPECT_EQ(usage.preemptions, 1);
  EXPECT_EQ(usage.cached_prompt_tokens, 10);
}

TEST_F(SharedPromptTest, TheLastTokenOfAPromptIsAlwaysComputed) {
  const auto engine = MakeEngine();
  const Request first = Make(Tokens(20), 4);
  Run(*engine, first);
  const Request again = Make(first.prompt, 4);
  const auto sink = Run(*engine, again);
  EXPECT_EQ(sink->completions.at(0).usage.cached_prompt_tokens, 15);
  EXPECT_EQ(sink->tokens.at(0), Cold(again));
}

TEST_F(SharedPromptTest, RequestsInTheSameBatchShareWhatOneOfThemComputes) {
  EngineOptions options;
  options.max_batch_tokens = 8;
  options.max_running = 8;
  const auto engine = MakeEngine(kShape, options);
  std::vector<Request> requests;
  std::vector<std::shared_ptr<ChoicesSink>> sinks;
  for (int32_t i = 0; i < 4; ++i) {
    requests.push_back(Make(Join(Tokens(40), {100 + i}), 6));
    sinks.push_back(Submit(*engine, requests.back()));
  }
  int64_t shared = 0;
  while (engine->Step()) shared = std::max(shared, engine->Stats().shared_bytes);
  EXPECT_EQ(shared, 8 * engine->Stats().block_bytes);
  for (size_t i = 0; i < sinks.size(); ++i) {
    EXPECT_EQ(sinks[i]->tokens.at(0), Cold(requests[i])) << i;
    EXPECT_EQ(sinks[i]->completions.at(0).usage.cached_prompt_tokens, i == 0 ? 0 : 40) << i;
  }
}

TEST_F(SharedPromptTest, SharedBytesAreCountedOnceInThePoolAndApartOfOwnBytes) {
  const auto engine = MakeEngine();
  Run(*engine, Make(Tokens(20), 2));
  Submit(*engine, Make(Join(Tokens(20), {7}), 9));
  Submit(*engine, Make(Join(Tokens(20), {8}), 9));
  engine->Step();
  const KvCacheStats stats = engine->Stats();
  const int64_t block = stats.block_bytes;
  for (const SequenceStats& sequence : engine->Sequences()) {
    EXPECT_EQ(sequence.kv_cache.shared_bytes, 4 * block);
    EXPECT_EQ(sequence.kv_cache.own_bytes, 1 * block);
    EXPECT_EQ(sequence.kv_cache.allocated_bytes, 5 * block);
  }
  EXPECT_EQ(stats.allocated_bytes, 6 * block);
  EXPECT_EQ(stats.shared_bytes, 4 * block);
  EXPECT_EQ(stats.positions, 22);
  EXPECT_EQ(stats.pool_bytes, stats.allocated_bytes + stats.evictable_bytes + stats.free_bytes);
}

TEST_F(SharedPromptTest, ATurnReusesTheOneBefore) {
  const auto engine = MakeEngine();
  std::vector<int32_t> conversation = Tokens(12);
  int64_t before = 0;
  for (int turn = 0; turn < 4; ++turn) {
    const Request request = Make(conversation, 8);
    const auto sink = Run(*engine, request);
    EXPECT_EQ(sink->tokens.at(0), Cold(request));
    // All full blocks that the previous turn had in its cache, which lacks its last generated
    // token.
    EXPECT_EQ(sink->completions.at(0).usage.cached_prompt_tokens, before) << turn;
    conversation = Join(Join(conversation, sink->tokens.at(0)), {5, 6, 7});
    before = (std::ssize(conversation) - 3 - 1) / 5 * 5;
  }
}

// With expanded attention, generated rows differ from prompt rows: a turn hits the previous turn's
// blocks only as far as a cold run would have computed the same bits.
TEST_F(SharedPromptTest, RowsComputedByAnotherPathAreNotReused) {
  const FakeModel::Shape shape = {.max_positions = 100, .expand_from = 15};
  const auto engine = MakeEngine(shape);
  const Request first = Make(Tokens(12), 20);
  const auto said = Run(*engine, first)->tokens.at(0);
  EXPECT_EQ(said, Cold(first, shape));
  const Request second = Make(Join(first.prompt, said), 8);
  const auto sink = Run(*engine, second);
  EXPECT_EQ(sink->tokens.at(0), Cold(second, shape));
  EXPECT_EQ(sink->completions.at(0).usage.cached_prompt_tokens, 15);
  // A prompt hits another prompt's blocks.
  const Request third = Make(Join(second.prompt, {1}), 8);
  EXPECT_EQ(Run(*engine, third)->completions.at(0).usage.cached_prompt_tokens, 30);
}

TEST_F(SharedPromptTest, WithoutThatRuleTheTextChanges) {
  const FakeModel::Shape shape = {.max_positions = 100, .expand_from = 15};
  Engine engine(std::make_unique<DeceivingModel>(shape), TestTokenizer(), {});
  const Request first = Make(Tokens(12), 20);
  const Request second = Make(Join(first.prompt, Run(engine, first)->tokens.at(0)), 8);
  const auto sink = Run(engine, second);
  EXPECT_EQ(sink->completions.at(0).usage.cached_prompt_tokens, 30);
  EXPECT_NE(sink->tokens.at(0), Cold(second, shape));
}

TEST_F(SharedPromptTest, ARequestThatBypassesTheCacheNeitherReadsNorFillsIt) {
  const auto engine = MakeEngine();
  Request request = Make(Tokens(20), 4);
  request.share_prefix = false;
  Run(*engine, request);
  EXPECT_EQ(engine->Stats().evictable_blocks, 0);
  Run(*engine, Make(Tokens(20), 4));
  EXPECT_EQ(engine->Stats().evictable_blocks, 4);
  request.id = "again";
  EXPECT_EQ(Run(*engine, request)->completions.at(0).usage.cached_prompt_tokens, 0);

  EngineOptions off;
  off.prefix_cache = false;
  const auto without = MakeEngine(kShape, off);
  Run(*without, Make(Tokens(20), 4));
  EXPECT_EQ(without->Stats().evictable_blocks, 0);
}

TEST_F(SharedPromptTest, AScoredPromptIsComputedAsAWhole) {
  const auto engine = MakeEngine();
  Run(*engine, Make(Tokens(20), 4));
  Request scores = Make(Tokens(20), 0);
  scores.prompt_logprobs = 0;
  auto sink = Run(*engine, scores);
  EXPECT_EQ(sink->prompt_logprobs, 19u);
  EXPECT_EQ(sink->completions.at(0).usage.cached_prompt_tokens, 0);
  Request both = Make(Tokens(20), 4);
  both.prompt_logprobs = 2;
  both.choices = 3;
  sink = Run(*engine, both);
  EXPECT_EQ(sink->prompt_logprobs, 19u) << "of one choice";
  EXPECT_EQ(sink->completions.at(0).usage.cached_prompt_tokens, 0);
  EXPECT_EQ(sink->completions.at(2).usage.cached_prompt_tokens, 15);
}

TEST_F(SharedPromptTest, CachedBlocksGiveWayToLiveOnes) {
  const FakeModel::Shape shape = {.max_positions = 100, .blocks = 8};
  const auto engine = MakeEngine(shape);
  for (int32_t i = 0; i < 6; ++i) {
    const Request request = Make(Tokens(30, 1 + 10 * i), 8);
    EXPECT_EQ(Run(*engine, request)->tokens.at(0), Cold(request, shape));
  }
  EXPECT_GT(engine->Stats().evicted_blocks, 0);
  EXPECT_EQ(engine->Stats().preemptions, 0);
}

// --- Choices --------------------------------------------------------------------------------

TEST_F(SharedPromptTest, ChoicesShareThePromptAndEqualSingleRequests) {
  for (const bool share : {true, false}) {
    const auto engine = MakeEngine();
    Request request = Make(Tokens(23), 8);
    request.choices = 4;
    request.seed = 11;
    request.sampling.temperature = 30;  // with logits of 20, any token can be sampled
    request.share_prefix = share;
    const auto sink = Run(*engine, request);
    EXPECT_EQ(sink->scheduled, 1);
    ASSERT_EQ(sink->completions.size(), 4u);
    for (int32_t choice = 0; choice < 4; ++choice) {
      const Completion& completion = sink->completions.at(choice);
      EXPECT_EQ(completion.usage.cached_prompt_tokens, choice == 0 ? 0 : 20);
      EXPECT_EQ(completion.seed, ChoiceSeed(11, choice));
      Request alone = request;
      alone.id = "alone";
      alone.choices = 1;
      alone.seed = completion.seed;
      EXPECT_EQ(Run(*MakeEngine(), alone)->tokens.at(0), sink->tokens.at(choice));
    }
    EXPECT_NE(sink->tokens.at(0), sink->tokens.at(1));
    EXPECT_EQ(engine->Stats().requests.finished, 1);
    EXPECT_EQ(engine->Stats().evictable_blocks > 0, share);
    EXPECT_EQ(engine->Stats().allocated_bytes, 0);
  }
}

TEST_F(SharedPromptTest, ChoicesEndTogetherWhenTheRequestIsCancelled) {
  for (const int steps : {0, 1, 3, 5}) {  // queued, prefill, decode
    EngineOptions options;
    options.max_batch_tokens = 10;
    options.max_running = 10;
    const auto engine = MakeEngine(kShape, options);
    Request request = Make(Tokens(23), 50);
    request.choices = 3;
    const auto sink = Submit(*engine, request);
    for (int step = 0; step < steps; ++step) engine->Step();
    EXPECT_EQ(engine->Sequences().size(), 3u);
    engine->Cancel(request.id);
    EXPECT_EQ(sink->completions.size(), 3u);
    EXPECT_TRUE(engine->idle());
    EXPECT_EQ(engine->Stats().allocated_bytes, 0);
    EXPECT_EQ(engine->Stats().requests.cancelled, 1);
  }
}

TEST_F(SharedPromptTest, AFailingPromptFailsEveryChoice) {
  auto model = std::make_unique<FakeModel>(kShape);
  model->before_step = [](const StepInput&) { throw std::runtime_error("broken"); };
  Engine engine(std::move(model), TestTokenizer(), {});
  Request request = Make(Tokens(23), 5);
  request.choices = 3;
  const auto sink = Run(engine, request);
  ASSERT_EQ(sink->completions.size(), 3u);
  for (const auto& [choice, completion] : sink->completions) {
    EXPECT_EQ(completion.reason, FinishReason::kFailed);
    EXPECT_EQ(completion.error, "broken");
  }
  EXPECT_EQ(engine.Stats().requests.failed, 1);
}

// --- Ends -----------------------------------------------------------------------------------

TEST_F(SharedPromptTest, StopTokensEndTheOutputButNotTooSoon) {
  const Request plain = Make(Tokens(7), 12);
  const std::vector<int32_t> said = Cold(plain);
  Request request = plain;
  request.stop_tokens = {said[4]};
  auto sink = Run(*MakeEngine(), request);
  EXPECT_EQ(sink->tokens.at(0).back(), said[4]);
  EXPECT_EQ(sink->completions.at(0).reason, FinishReason::kStop);
  EXPECT_LE(sink->tokens.at(0).size(), 5u);

  request.min_new_tokens = 12;
  sink = Run(*MakeEngine(), request);
  EXPECT_EQ(sink->tokens.at(0).size(), 12u);
  EXPECT_EQ(sink->completions.at(0).reason, FinishReason::kLength);
  EXPECT_THAT(sink->tokens.at(0), testing::Not(testing::Contains(said[4])));
}

TEST_F(SharedPromptTest, AllowedTokensAreTheOnlyOnes) {
  Request request = Make(Tokens(7), 12);
  request.sampling.temperature = 100;
  request.sampling.allowed = {'a', 'b', 9999, -1};
  const auto sink = Run(*MakeEngine(), request);
  EXPECT_THAT(sink->tokens.at(0), testing::Each(testing::AnyOf('a', 'b')));
}

// --- Waiting --------------------------------------------------------------------------------

TEST_F(SharedPromptTest, ARequestThatWaitsTooLongIsRefused) {
  EngineClock::time_point now;
  EngineOptions options;
  options.max_running = 1;
  options.queue_timeout = std::chrono::seconds(5);
  Engine engine(std::make_unique<FakeModel>(kShape), TestTokenizer(), options, [&] { return now; });
  Request runs = Make(Tokens(7), 50), waits = Make(Tokens(8), 5);
  runs.arrived = waits.arrived = now;
  waits.choices = 2;
  const auto running = Submit(engine, runs), waiting = Submit(engine, waits);
  engine.Step();
  now += std::chrono::seconds(5);
  engine.Step();
  EXPECT_EQ(waiting->rejected, std::nullopt);
  now += std::chrono::milliseconds(1);
  engine.Step();
  EXPECT_EQ(waiting->rejected, SubmitStatus::kQueueTimeout);
  EXPECT_THAT(waiting->completions, IsEmpty());
  EXPECT_EQ(running->rejected, std::nullopt) << "it has been scheduled";
  EXPECT_EQ(engine.Sequences().size(), 1u);
}

TEST_F(SharedPromptTest, SequencesAreListedByNumberPageAndClient) {
  const auto engine = MakeEngine();
  for (int i = 0; i < 6; ++i) {
    Request request = Make(Tokens(7), 5);
    request.number = 10 + i;
    request.client = i % 2 == 0 ? "even" : "odd";
    Submit(*engine, request);
  }
  const auto numbers = [&](const SequenceQuery& query) {
    std::vector<uint64_t> found;
    for (const SequenceStats& sequence : engine->Sequences(query)) found.push_back(sequence.number);
    return found;
  };
  EXPECT_THAT(numbers({}), ElementsAre(10, 11, 12, 13, 14, 15));
  EXPECT_THAT(numbers({.after = 11, .limit = 2}), ElementsAre(12, 13));
  EXPECT_THAT(numbers({.after = 10, .limit = 2, .client = "even"}), ElementsAre(12, 14));
  EXPECT_THAT(numbers({.after = 15}), IsEmpty());
}

}  // namespace
}  // namespace triptych::serving::shared_prompt_test
