// Speculation on a model without weights: the same output in fewer steps.
#include "engine/serving/speculation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/serving/engine.h"
#include "engine/serving/ngram_drafter.h"
#include "tests/support/fake_model.h"
#include "tests/support/recording_sink.h"
#include "tests/support/regex_grammar.h"
#include "tests/support/scripted_drafter.h"
#include "tests/support/tokenizer.h"

namespace triptych::serving::speculation_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct Output {
  std::vector<int32_t> tokens;
  std::string text;
  std::vector<float> logprobs;
  std::optional<FinishReason> reason;
  std::optional<std::string> stop;
  RequestUsage usage;

  bool operator==(const Output& other) const {
    return tokens == other.tokens && text == other.text && logprobs == other.logprobs &&
           reason == other.reason && stop == other.stop &&
           usage.kv_cache.positions == other.usage.kv_cache.positions &&
           usage.generated_tokens == other.usage.generated_tokens;
  }
};

// The outputs of a request's choices.
class Outputs final : public RequestSink {
 public:
  void OnRejected(SubmitStatus) override { FAIL(); }
  void OnDelta(Delta delta) override {
    Output& output = choices[delta.choice];
    output.tokens.push_back(delta.token);
    output.text += delta.text;
    if (!delta.logprobs) return;
    output.logprobs.push_back(delta.logprobs->chosen.logprob);
    for (const TokenLogprob& top : delta.logprobs->top) output.logprobs.push_back(top.logprob);
  }
  void OnFinish(Completion completion) override {
    Output& output = choices[completion.choice];
    output.reason = completion.reason;
    output.stop = completion.stop;
    output.usage = completion.usage;
  }

  std::map<int32_t, Output> choices;
};

using AllOutputs = std::map<std::string, std::map<int32_t, Output>>;  // by request, then choice

struct Result {
  AllOutputs outputs = {};
  int64_t steps = 0;
  int64_t preemptions = 0;
  int64_t drafted = 0, accepted = 0, saved = 0;
  int64_t draft_steps = 0;      // by the draft model
  int64_t draft_rows = 0;       // computed by it
  int64_t most_draft_rows = 0;  // in a step
};

// `draft_shape`: of the draft model, if there is one.
Result RunAll(const std::vector<Request>& requests, const FakeModel::Shape& shape,
              const EngineOptions& options,
              const std::optional<FakeModel::Shape>& draft_shape = {}) {
  Result run;
  auto owned = std::make_unique<FakeModel>(shape);
  const FakeModel& model = *owned;
  std::unique_ptr<FakeModel> draft_model;
  if (draft_shape) {
    draft_model = std::make_unique<FakeModel>(*draft_shape);
    draft_model->before_step = [&run](const StepInput& step) {
      ++run.draft_steps;
      run.draft_rows += std::ssize(step.ids);
      run.most_draft_rows = std::max(run.most_draft_rows, std::ssize(step.ids));
    };
  }
  Engine engine(std::move(owned), TestTokenizer(), options, EngineClock::now,
                std::make_shared<kernels::KernelContext>(1), std::move(draft_model));
  std::map<std::string, std::shared_ptr<Outputs>> sinks;
  for (const Request& request : requests) {
    engine.Submit(request, sinks[request.id] = std::make_shared<Outputs>());
    engine.Step();  // others arrive while it runs
  }
  do {
    for (const SequenceStats& sequence : engine.Sequences()) {
      EXPECT_LT(sequence.kv_cache.allocated_bytes - sequence.kv_cache.used_bytes,
                engine.Stats().block_bytes * engine.info().geometry.Groups().count());
    }
  } while (engine.Step());
  EXPECT_EQ(engine.Stats().allocated_bytes, 0);
  run.steps = model.steps;
  run.preemptions = engine.Stats().preemptions;
  run.drafted = engine.metrics().drafted_tokens.value();
  run.accepted = engine.metrics().accepted_tokens.value();
  run.saved = engine.metrics().saved_steps.value();
  int64_t drafted = 0, accepted = 0;
  for (const auto& [id, sink] : sinks) {
    run.outputs[id] = sink->choices;
    for (const auto& [choice, output] : sink->choices) {
      drafted += output.usage.drafted_tokens;
      accepted += output.usage.accepted_tokens;
    }
  }
  EXPECT_EQ(drafted, run.drafted);
  EXPECT_EQ(accepted, run.accepted);
  return run;
}

// Drafts from the outputs of another run. `wrong`: of ten tokens.
EngineOptions Scripted(EngineOptions options, const AllOutputs& outputs, int wrong) {
  options.speculation = Speculation::kAlways;
  options.make_drafter = [&outputs, wrong](const Sequence& sequence) {
    const std::vector<int32_t>& tokens =
        outputs.at(sequence.request->id).at(sequence.choice).tokens;
    const int64_t prompt = sequence.prompt_length();
    return std::make_unique<ScriptedDrafter>(
        [&tokens, prompt](std::span<const int32_t> so_far) {
          const auto from = std::min(std::ssize(so_far) - prompt, std::ssize(tokens));
          return std::vector<int32_t>(tokens.begin() + from, tokens.end());
        },
        wrong);
  };
  return options;
}

// Requests that use everything that the choice of a token depends on.
std::vector<Request> RandomRequests(uint64_t seed) {
  std::mt19937_64 generator(seed);
  const auto one_in = [&](uint64_t n) { return generator() % n == 0; };
  const auto grammar = RegexGrammar("(?:[a-e]{1,4}(?:,|;;)){1,9}(?:end)?");
  std::vector<Request> requests(12);
  for (size_t i = 0; i < requests.size(); ++i) {
    Request& request = requests[i];
    request.id = std::to_string(i);
    request.prompt.resize(1 + generator() % 30);
    for (int32_t& token : request.prompt) token = static_cast<int32_t>('a' + generator() % 8);
    request.max_new_tokens = static_cast<int64_t>(1 + generator() % 30);
    request.seed = generator();
    // The model gives one token most of the probability, or a part of it.
    request.sampling.temperature = std::vector<float>{0, 1, 4, 8}[generator() % 4];
    if (one_in(3)) request.sampling.top_p = 0.9f;
    if (one_in(3)) request.sampling.repetition_penalty = 1.5f;
    if (one_in(4)) request.sampling.frequency_penalty = 5;
    if (one_in(4)) request.sampling.presence_penalty = 3;
    if (one_in(3)) {
      for (int32_t token = 'a'; token < 'a' + 8; ++token) request.sampling.logit_bias[token] = 18;
    }
    if (one_in(4)) request.stop = {"ab", "c", "fgh"};
    if (one_in(4)) request.stop_tokens = {'d', 'e'};
    if (one_in(3)) request.min_new_tokens = std::min<int64_t>(request.max_new_tokens, 6);
    request.ignore_eos = one_in(2);
    if (one_in(2)) request.logprobs = 2;
    if (one_in(4)) request.choices = 3;
    if (one_in(4)) request.grammar = grammar;
    if (one_in(6)) request.most_drafted = static_cast<int32_t>(generator() % 4);
  }
  return requests;
}

class SpeculationTest : public testing::TestWithParam<int> {};

TEST_P(SpeculationTest, ChangesNoOutput) {
  int64_t preemptions = 0, accepted = 0, rejected = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    FakeModel::Shape shape{.max_positions = 64, .blocks = seed % 2 == 0 ? 200 : 40};
    if (seed % 3 == 1) shape.expand_from = 7;
    if (seed % 3 == 2) {
      shape.windowed_layers = 1;
      shape.full_layers = static_cast<int64_t>(seed % 2);
      shape.window = 12;
    }
    EngineOptions options;
    options.max_batch_tokens = seed % 4 == 0 ? 16 : 64;
    const std::vector<Request> requests = RandomRequests(seed);
    const Result plain = RunAll(requests, shape, options);
    EXPECT_EQ(plain.drafted, 0);
    const Result drafts = RunAll(requests, shape, Scripted(options, plain.outputs, GetParam()));
    EXPECT_EQ(drafts.outputs, plain.outputs);
    EXPECT_GT(drafts.drafted, 0);
    preemptions += drafts.preemptions;
    accepted += drafts.accepted;
    rejected += drafts.drafted - drafts.accepted;
    EXPECT_GE(drafts.accepted, drafts.saved);
  }
  EXPECT_GT(preemptions, 0);
  EXPECT_EQ(accepted > 0, GetParam() < 10);
  EXPECT_EQ(rejected > 0, GetParam() > 0);
}

INSTANTIATE_TEST_SUITE_P(WrongOfTen, SpeculationTest, testing::Values(0, 3, 5, 10),
                         testing::PrintToStringParamName());

Request Greedy(const std::string& id, int64_t max_new_tokens) {
  Request request;
  request.id = id;
  for (const char c : "prompt of " + id) request.prompt.push_back(static_cast<unsigned char>(c));
  request.max_new_tokens = max_new_tokens;
  request.sampling.temperature = 0;
  request.ignore_eos = true;
  return request;
}

TEST(Speculation, RightDraftsSaveSteps) {
  const std::vector<Request> requests = {Greedy("a", 100)};
  const FakeModel::Shape shape{.max_positions = 200};
  const Result plain = RunAll(requests, shape, {});
  const Result drafts = RunAll(requests, shape, Scripted({}, plain.outputs, 0));
  EXPECT_EQ(drafts.outputs, plain.outputs);
  EXPECT_EQ(plain.steps, 100);
  EXPECT_EQ(drafts.accepted, drafts.drafted);
  EXPECT_EQ(drafts.saved, 100 - drafts.steps);
  EXPECT_LT(drafts.steps, 20);
}

TEST(Speculation, APredictionIsADraft) {
  Request request = Greedy("a", 100);
  const FakeModel::Shape shape{.max_positions = 200};
  const Result plain = RunAll({request}, shape, {});
  request.prediction = plain.outputs.at("a").at(0).tokens;
  request.prediction[50] ^= 1;  // replaced
  EngineOptions options;
  options.speculation = Speculation::kAlways;
  const Result drafts = RunAll({request}, shape, options);
  EXPECT_EQ(drafts.outputs, plain.outputs);
  EXPECT_GT(drafts.accepted, 90);
  EXPECT_LT(drafts.steps, 15);
}

TEST(Speculation, IsOffByRequest) {
  Request request = Greedy("a", 30);
  request.most_drafted = 0;
  const Result plain = RunAll({Greedy("a", 30)}, {.max_positions = 200}, {});
  const Result drafts = RunAll({request}, {.max_positions = 200}, Scripted({}, plain.outputs, 0));
  EXPECT_EQ(drafts.drafted, 0);
  EXPECT_EQ(drafts.steps, plain.steps);
}

TEST(Speculation, NeedsAModelThatVerifiesDrafts) {
  const FakeModel::Shape shape{.max_positions = 200, .likely_tokens = 4};
  const Result plain = RunAll({Greedy("a", 30)}, shape, {});
  const Result drafts = RunAll({Greedy("a", 30)}, shape, Scripted({}, plain.outputs, 0));
  EXPECT_EQ(drafts.outputs, plain.outputs);
  EXPECT_EQ(drafts.drafted, 0);
}

TEST(Speculation, ADrafterThatThrowsFailsItsStep) {
  EngineOptions options;
  options.speculation = Speculation::kAlways;
  options.make_drafter = [](const Sequence&) -> std::unique_ptr<Drafter> {
    throw std::bad_alloc();
  };
  const Result run = RunAll({Greedy("a", 30)}, {.max_positions = 200}, options);
  EXPECT_EQ(run.outputs.at("a").at(0).reason, FinishReason::kFailed);
}

TEST(Speculation, APredictionTakesNoRoomInTheQueueWithoutIt) {
  for (const bool on : {false, true}) {
    EngineOptions options;
    options.max_waiting_tokens = 50;
    if (on) options.speculation = Speculation::kAlways;
    Engine engine(std::make_unique<FakeModel>(FakeModel::Shape()), TestTokenizer(), options);
    for (const char* const id : {"a", "b"}) {
      Request request = Greedy(id, 5);
      request.prediction.assign(100, 7);
      engine.Submit(std::move(request), std::make_shared<RecordingSink>());
    }
    EXPECT_EQ(engine.Stats().requests.refused, on ? 1 : 0);
  }
}

// A model with 10 blocks of 5 positions, which two sequences fill.
TEST(Speculation, DraftsPreemptNobody) {
  const std::vector<Request> requests = {Greedy("a", 14), Greedy("b", 14)};
  const FakeModel::Shape shape{.max_positions = 64, .blocks = 10};
  const Result plain = RunAll(requests, shape, {});
  ASSERT_EQ(plain.preemptions, 0);
  const Result drafts = RunAll(requests, shape, Scripted({}, plain.outputs, 10));
  EXPECT_EQ(drafts.outputs, plain.outputs);
  EXPECT_EQ(drafts.preemptions, 0);
  EXPECT_GT(drafts.drafted, 0);
}

TEST(Speculation, IgnoresTokensThatTheModelLacks) {
  EngineOptions options;
  options.speculation = Speculation::kAlways;
  options.make_drafter = [](const Sequence&) {
    return std::make_unique<ScriptedDrafter>(
        [](std::span<const int32_t>) {
          return std::vector<int32_t>{1 << 20, -5};
        },
        0);
  };
  const Result run = RunAll({Greedy("a", 30)}, {.max_positions = 200}, options);
  EXPECT_EQ(run.outputs.at("a").at(0).reason, FinishReason::kLength);
  EXPECT_EQ(run.drafted, 0);
}

// --- Draft model ----------------------------------------------------------------------------

EngineOptions Always() {
  EngineOptions options;
  options.speculation = Speculation::kAlways;
  return options;
}

TEST(DraftModel, ChangesNoOutput) {
  int64_t preemptions = 0, accepted = 0, rejected = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    FakeModel::Shape shape{.max_positions = 64, .blocks = seed % 2 == 0 ? 200 : 40};
    FakeModel::Shape draft_shape = shape;
    if (seed % 3 == 1) shape.expand_from = 7;  // its drafts after long prompts are wrong
    if (seed % 3 == 2) draft_shape.max_positions = 30;
    if (seed % 5 == 3) draft_shape.vocab_size = 90;
    EngineOptions options;
    options.max_batch_tokens = seed % 4 == 0 ? 16 : 64;
    const std::vector<Request> requests = RandomRequests(seed);
    const Result plain = RunAll(requests, shape, options);
    options.speculation = seed % 7 == 0 ? Speculation::kWherePays : Speculation::kAlways;
    const Result drafts = RunAll(requests, shape, options, draft_shape);
    EXPECT_EQ(drafts.outputs, plain.outputs);
    preemptions += drafts.preemptions;
    accepted += drafts.accepted;
    rejected += drafts.drafted - drafts.accepted;
  }
  EXPECT_GT(preemptions, 0);
  EXPECT_GT(accepted, 500);
  EXPECT_GT(rejected, 500);
}

// An equal model: a stale, missing or foreign row of its cache would draft another token.
TEST(DraftModel, AnEqualModelIsAlwaysRight) {
  std::vector<Request> requests;
  for (int i = 0; i < 8; ++i) {
    requests.push_back(Greedy(std::to_string(i % 5), 30 + i));  // equal prompts share blocks
    requests.back().id = std::to_string(i);
    requests.back().choices = 1 + i % 2;
    requests.back().most_drafted = 1 + i % 4;
  }
  for (const int64_t blocks : {400, 30}) {  // with and without preemption
    const FakeModel::Shape shape{.max_positions = 80, .blocks = blocks};
    const Result plain = RunAll(requests, shape, {});
    const Result drafts = RunAll(requests, shape, Always(), shape);
    EXPECT_EQ(drafts.outputs, plain.outputs);
    EXPECT_EQ(drafts.preemptions > 0, blocks == 30);
    EXPECT_GT(drafts.drafted, 100);
    EXPECT_EQ(drafts.accepted, drafts.drafted);
    EXPECT_LT(drafts.steps, plain.steps);
  }
}

// Each token of a sequence costs the draft model a row, and rejected ones cost another.
TEST(DraftModel, ComputesNoRowTwice) {
  const FakeModel::Shape shape{.max_positions = 200};
  const Request request = Greedy("a", 100);
  const Result drafts = RunAll({request}, shape, Always(), shape);
  EXPECT_EQ(drafts.accepted, drafts.drafted);
  EXPECT_LE(drafts.draft_rows, std::ssize(request.prompt) + 100);
}

TEST(DraftModel, UsesTheRowsOfAnEqualPrefix) {
  const FakeModel::Shape shape{.max_positions = 200};
  Request first = Greedy("a", 20);
  first.prompt.resize(100, 'x');
  Request second = first;
  second.id = "b";
  EngineOptions options = Always();
  const int64_t alone = RunAll({first}, shape, options, shape).draft_rows;
  options.max_running = 1;  // one after the other
  EXPECT_LT(RunAll({first, second}, shape, options, shape).draft_rows - alone, 30);
  options.prefix_cache = false;
  EXPECT_EQ(RunAll({first, second}, shape, options, shape).draft_rows - alone, alone);
}

TEST(DraftModel, CatchesUpWithALongPromptInBoundedSteps) {
  const FakeModel::Shape shape{.max_positions = 2000, .blocks = 1000};
  Request request = Greedy("a", 400);
  request.prompt.resize(1500, 'x');
  EngineOptions options = Always();
  options.max_batch_tokens = 2000;
  const Result plain = RunAll({request}, shape, {});
  const Result drafts = RunAll({request}, shape, options, shape);
  EXPECT_EQ(drafts.outputs, plain.outputs);
  EXPECT_LE(drafts.most_draft_rows, 129);
  EXPECT_GT(drafts.accepted, 150);
  EXPECT_EQ(drafts.accepted, drafts.drafted);
}

TEST(DraftModel, LeavesALongPromptForFewTokens) {
  const FakeModel::Shape shape{.max_positions = 2000, .blocks = 1000};
  Request request = Greedy("a", 30);
  request.prompt.resize(1500, 'x');
  EngineOptions options = Always();
  options.max_batch_tokens = 2000;
  EXPECT_EQ(RunAll({request}, shape, options, shape).draft_steps, 0);
}

TEST(DraftModel, IsOffByRequest) {
  const FakeModel::Shape shape{.max_positions = 200};
  Request request = Greedy("a", 30);
  request.most_drafted = 0;
  const Result run = RunAll({request}, shape, Always(), shape);
  EXPECT_EQ(run.draft_steps, 0);
  EXPECT_EQ(run.drafted, 0);
}

TEST(DraftModel, ItsFailureFailsTheStep) {
  auto draft_model = std::make_unique<FakeModel>(FakeModel::Shape());
  draft_model->before_step = [](const StepInput&) { throw std::bad_alloc(); };
  Engine engine(std::make_unique<FakeModel>(FakeModel::Shape()), TestTokenizer(), Always(),
                EngineClock::now, std::make_shared<kernels::KernelContext>(1),
                std::move(draft_model));
  const auto sink = std::make_shared<Outputs>();
  engine.Submit(Greedy("a", 30), sink);
  while (engine.Step()) {
  }
  EXPECT_EQ(sink->choices[0].reason, FinishReason::kFailed);
  EXPECT_EQ(engine.Stats().allocated_bytes, 0);
}

// A row of FakeModel takes 32 bytes of a position, and 128 with MHA.
TEST(DraftModel, ItsRowsCountAsPartsOfTheModels) {
  const FakeModel::Shape shape{.max_positions = 200};
  Engine engine(std::make_unique<FakeModel>(shape), TestTokenizer(), Always(), EngineClock::now,
                std::make_shared<kernels::KernelContext>(1), std::make_unique<FakeModel>(shape));
  EXPECT_EQ(engine.Stats().pool_bytes, 200 * 5 * (32 + 32));
  EXPECT_EQ(engine.Stats().free_bytes, engine.Stats().pool_bytes);
  const auto sink = std::make_shared<Outputs>();
  engine.Submit(Greedy("a", 40), sink);
  for (int i = 0; i < 3; ++i) engine.Step();
  const KvCacheStats stats = engine.Stats();
  EXPECT_EQ(stats.bytes_per_position, 64);
  EXPECT_EQ(stats.block_bytes, 5 * 64);
  EXPECT_GT(stats.positions, 10);
  EXPECT_EQ(stats.used_bytes, stats.positions * 64);
  EXPECT_EQ(stats.mha_used_bytes, stats.positions * 256);
  EXPECT_EQ(stats.pool_bytes, stats.allocated_bytes + stats.evictable_bytes + stats.free_bytes);
  EXPECT_EQ(engine.Sequences().at(0).kv_cache.used_bytes, stats.used_bytes);
  engine.Cancel("a");
  EXPECT_EQ(engine.Stats().allocated_bytes, 0);
}

// --- NgramDrafter ---------------------------------------------------------------------------

std::vector<int32_t> Bytes(std::string_view text) { return {text.begin(), text.end()}; }

std::string Proposed(std::string_view prompt, std::string_view output,
                     std::string_view prediction = "", int64_t most = 6) {
  const std::vector<int32_t> predicted = Bytes(prediction);
  NgramDrafter drafter(predicted, std::ssize(prompt));
  Draft draft;
  drafter.Propose(Bytes(std::string(prompt) + std::string(output)), most, draft);
  return {draft.tokens.begin(), draft.tokens.end()};
}

TEST(NgramDrafter, GoesOnAsAfterTheLongestMatch) {
  EXPECT_EQ(Proposed("one bird flew, two birds sat; ", "two bi"), "rds sa");
  EXPECT_EQ(Proposed("the cat and the dog", "; the"), " dog; ");  // the latest of equals
  EXPECT_EQ(Proposed("the longest the cat and the dog", "longest the"), " cat a");
}

TEST(NgramDrafter, DraftsNothingWithoutAMatch) { EXPECT_EQ(Proposed("abcdef", "gh"), ""); }

TEST(NgramDrafter, ARepetitionGoesOnInTheDraft) {
  EXPECT_EQ(Proposed("x", "abcabc", "", 8), "abcabcab");
}

TEST(NgramDrafter, FollowsThePredictionFromItsStart) {
  EXPECT_EQ(Proposed("tell me: ", "N", "Now it is"), "ow it ");
  EXPECT_EQ(Proposed("tell me: ", "Now it ", "Now it is"), "is");
}

TEST(NgramDrafter, GoesOnBehindAReplacedToken) {
  const std::vector<int32_t> prediction = Bytes("the red fox runs");
  NgramDrafter drafter(prediction, 1);
  Draft draft;
  drafter.Propose(Bytes("?the "), 3, draft);
  EXPECT_EQ(draft.tokens, Bytes("red"));
  drafter.Propose(Bytes("?the t"), 3, draft);
  drafter.Propose(Bytes("?the tan"), 3, draft);
  EXPECT_THAT(draft.tokens, IsEmpty());
  drafter.Propose(Bytes("?the tan "), 3, draft);  // one equal token
  EXPECT_EQ(draft.tokens, Bytes("fox"));
}

std::vector<int32_t> Ascending(int64_t count) {
  std::vector<int32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

TEST(NgramDrafter, FindsTheEndOfALongTextSomeProposalsLater) {
  for (const bool predicted : {false, true}) {
    std::vector<int32_t> prediction, tokens;
    (predicted ? prediction : tokens) = Ascending(10'000);
    NgramDrafter drafter(prediction, 0);
    Draft draft;
    int proposals = 0;
    for (int32_t token = 9000; draft.tokens.empty(); ++token, ++proposals) {
      ASSERT_LT(proposals, 10);
      for (int32_t before = token - 7; before <= token; ++before) tokens.push_back(before);
      drafter.Propose(tokens, 3, draft);
    }
    EXPECT_GT(proposals, 2);
    EXPECT_EQ(draft.tokens.front(), tokens.back() + 1);
  }
}

// --- NgramIndex -----------------------------------------------------------------------------

TEST(NgramIndex, VisitsFewOfManyEqualNgrams) {
  const std::vector<int32_t> tokens(10'000, 7);
  NgramIndex index(6);
  index.Extend(tokens, std::ssize(tokens));
  std::vector<int64_t> ends;
  index.ForEach(tokens, [&](int64_t end) { ends.push_back(end); });
  EXPECT_EQ(ends.size(), 16);
  EXPECT_EQ(ends.front(), 10'000);
}

TEST(NgramIndex, AddsNoMoreThanItMayAlsoWhenItGrows) {
  const std::vector<int32_t> tokens = Ascending(5000);
  NgramIndex index(2);
  const auto finds = [&](int64_t end) {
    bool found = false;
    index.ForEach(std::span(tokens).first(end), [&](int64_t place) { found |= place == end; });
    return found;
  };
  for (const int64_t length : {4000, 5000}) {  // the second takes a larger table
    for (int64_t call = 1; call <= length / 1000; ++call) {
      EXPECT_FALSE(finds(length));
      index.Extend(std::span(tokens).first(length), 1000);
      EXPECT_TRUE(finds(1000 * call));
      if (1000 * call < length) {
        EXPECT_FALSE(finds(1000 * call + 2)) << call;
      }
    }
    EXPECT_TRUE(finds(length));
  }
}

// --- SpeculationPolicy ------------------------------------------------------------------------

// A policy and sequences whose drafts are right with a probability each, on a virtual machine.
class PolicyTest : public testing::Test {
 protected:
  // Runs steps; returns the tokens per second of each sequence, without the first steps.
  // `draft_step`: time of a draft model's step, compared to a step of one row; absent: drafters
  // draft.
  std::vector<double> Rates(const std::vector<double>& right, double row_cost, int steps = 3000,
                            std::optional<double> draft_step = {}) {
    SpeculationPolicy policy(Speculation::kWherePays);
    std::vector<SequenceSpeculation> sequences(right.size());
    std::vector<SequenceSpeculation*> all;
    for (SequenceSpeculation& sequence : sequences) {
      policy.Begin(sequence);
      all.push_back(&sequence);
    }
    std::mt19937_64 generator(1);
    std::vector<double> tokens(right.size());
    double time = 0;
    for (int step = 0; step < steps; ++step) {
      for (size_t i = 0; i < right.size(); ++i) {
        const int64_t tokens_drafted = right[i] > 0 ? 32 : 0;
        sequences[i].draft.tokens.assign(draft_step ? 0 : tokens_drafted, 7);
        sequences[i].draft.strength = 1;
        sequences[i].most_by_draft_model = draft_step ? tokens_drafted : 0;
      }
      const std::span<const int64_t> counts = policy.Choose(all, 100);
      int64_t rows = std::ssize(right);
      for (size_t i = 0; i < right.size(); ++i) {
        int64_t accepted = 0;
        const auto is_right = [&] {
          return static_cast<double>(generator() >> 11) * 0x1p-53 < right[i];
        };
        while (accepted < counts[i] && is_right()) ++accepted;
        if (counts[i] > 0) policy.RecordResult(sequences[i], counts[i], accepted);
        tokens[i] += static_cast<double>(1 + accepted);
        rows += counts[i];
      }
      // A step of 10 ms, and `row_cost` of that for each row after the first.
      const double took = 0.01 * (1 + row_cost * static_cast<double>(rows - 1));
      policy.Record(rows, StepCosts::Duration(took));
      time += took;
      if (!draft_step) continue;
      for (int64_t depth = 0; depth < *std::max_element(counts.begin(), counts.end()); ++depth) {
        const auto drafts = std::count_if(counts.begin(), counts.end(),
                                          [=](int64_t count) { return count > depth; });
        policy.RecordDrafting(drafts, StepCosts::Duration(0.01 * *draft_step));
        time += 0.01 * *draft_step;
      }
    }
    for (double& count : tokens) count /= time;
    return tokens;
  }
};

TEST_F(PolicyTest, RightDraftsWithCheapRowsArePlentiful) {
  EXPECT_GT(Rates({1.0}, 0.03)[0], 0.95 * 33 / (0.01 * (1 + 32 * 0.03)));
}

TEST_F(PolicyTest, WrongDraftsCostLittle) {
  for (const double row_cost : {0.05, 0.5, 1.0}) {
    EXPECT_GT(Rates({0.01}, row_cost)[0], 0.97 * 100) << row_cost;
  }
}

TEST_F(PolicyTest, ExpensiveRowsAreDraftedOnlyIfTheyPay) {
  EXPECT_GT(Rates({0.5}, 0.9)[0], 0.97 * 100);
  EXPECT_GT(Rates({0.8}, 0.2)[0], 1.5 * 100);
}

TEST_F(PolicyTest, OthersKeepTheirPace) {
  // The second sequence has no drafts; without those of the first it would have 100 / 1.2 tokens.
  const std::vector<double> tokens = Rates({1.0, 0.0}, 0.2);
  EXPECT_GT(tokens[1], 0.9 * 100 / 1.2);
  const std::vector<double> cheap = Rates({1.0, 0.0}, 0.005);
  EXPECT_GT(cheap[1], 0.9 * 100 / 1.005);
  EXPECT_GT(cheap[0], 5 * 100);
}

TEST_F(PolicyTest, OtherModelsKeepTheirPace) {
  SpeculationPolicy policy(Speculation::kWherePays);
  SequenceSpeculation sequence;
  policy.Begin(sequence);
  sequence.draft.tokens.assign(32, 7);
  sequence.draft.strength = 3;
  for (int i = 0; i < 3; ++i) {
    policy.Record(1, StepCosts::Duration(0.010));
    policy.Record(32, StepCosts::Duration(0.041));  // a millisecond for a row
  }
  const std::vector<SequenceSpeculation*> all = {&sequence};
  EXPECT_GT(policy.Choose(all, 100)[0], 8);
  EXPECT_THAT(policy.Choose(all, 100, StepCosts::Duration(0.0055)), ElementsAre(5));
  EXPECT_THAT(policy.Choose(all, 100, StepCosts::Duration(0.0001)), ElementsAre(3));  // unfelt
}

TEST_F(PolicyTest, TheTimeOfADraftModelCounts) {
  EXPECT_GT(Rates({0.8}, 0.02, 3000, 0.05)[0], 2.5 * 100);
  EXPECT_GT(Rates({0.8}, 0.02, 3000, 0.4)[0], 1.2 * 100);
  EXPECT_GT(Rates({0.8}, 0.02, 3000, 0.9)[0], 0.95 * 100);
  EXPECT_GT(Rates({0.3}, 0.02, 3000, 0.4)[0], 0.95 * 100);
}

TEST_F(PolicyTest, OthersKeepTheirPaceBesideADraftModel) {
  const std::vector<double> tokens = Rates({1.0, 0.0}, 0.005, 3000, 0.03);
  EXPECT_GT(tokens[1], 0.9 * 100 / 1.005);
  EXPECT_GT(tokens[0], 1.7 * 100);
  EXPECT_GT(Rates({1.0, 0.0}, 0.005, 3000, 0.3)[1], 0.9 * 100 / 1.005);
}

TEST_F(PolicyTest, FreeDraftsAreUsedWhereTheDraftModelDoesNotPay) {
  SpeculationPolicy policy(Speculation::kWherePays);
  SequenceSpeculation sequence;
  policy.Begin(sequence);
  for (int i = 0; i < 3; ++i) {
    policy.Record(1, StepCosts::Duration(0.010));
    policy.Record(16, StepCosts::Duration(0.011));
  }
  const auto choose = [&] {
    sequence.draft.tokens.assign(4, 7);
    sequence.draft.strength = 1;
    sequence.most_by_draft_model = 10;
    const std::vector<SequenceSpeculation*> all = {&sequence};
    return policy.Choose(all, 100)[0];
  };
  policy.RecordDrafting(1, StepCosts::Duration(0.009));
  EXPECT_EQ(choose(), 4);
  EXPECT_EQ(sequence.draft.strength, 1);
  for (int i = 0; i < 300; ++i) policy.RecordDrafting(1, StepCosts::Duration(0.0001));
  EXPECT_GT(choose(), 4);
  EXPECT_EQ(sequence.draft.strength, Draft::kByDraftModel);
}

TEST_F(PolicyTest, CatchingUpIsBounded) {
  SpeculationPolicy policy(Speculation::kWherePays);
  EXPECT_EQ(policy.MostCaughtUp(1, {}), 8);  // of an unknown time
  for (int i = 0; i < 3; ++i) {
    policy.Record(1, StepCosts::Duration(0.010));
    policy.Record(4, StepCosts::Duration(0.010));
    policy.RecordDrafting(1, StepCosts::Duration(0.001));
    policy.RecordDrafting(128, StepCosts::Duration(0.009));
  }
  EXPECT_EQ(policy.MostCaughtUp(1, {}), 128);
  EXPECT_EQ(policy.MostCaughtUp(4, {}), 8);  // these keep their pace
  EXPECT_EQ(policy.MostCaughtUp(1, StepCosts::Duration(0.004)), 32);
}

TEST_F(PolicyTest, AlwaysVerifiesEveryDraft) {
  SpeculationPolicy policy(Speculation::kAlways);
  std::vector<SequenceSpeculation> sequences(2);
  for (SequenceSpeculation& sequence : sequences) sequence.draft.tokens.assign(20, 7);
  std::vector<SequenceSpeculation*> all = {&sequences[0], &sequences[1]};
  EXPECT_THAT(policy.Choose(all, 100), ElementsAre(20, 20));
  EXPECT_THAT(policy.Choose(all, 30), ElementsAre(20, 10));
}

TEST(StepCosts, InterpolatesAndGuessesALittle) {
  StepCosts costs;
  EXPECT_FALSE(costs.Of(1));
  for (int i = 0; i < 3; ++i) costs.Record(1, StepCosts::Duration(0.010));
  EXPECT_TRUE(costs.Measured(1));
  EXPECT_FALSE(costs.Measured(2));
  EXPECT_DOUBLE_EQ(costs.Of(1).value(), 0.010);
  EXPECT_FALSE(costs.Of(5));
  EXPECT_LT(costs.Of(4).value(), 0.020);
  for (int i = 0; i < 3; ++i) costs.Record(16, StepCosts::Duration(0.040));
  EXPECT_DOUBLE_EQ(costs.Of(16).value(), 0.040);
  EXPECT_DOUBLE_EQ(costs.Of(6).value(), 0.020);
}

TEST(StepCosts, ForgetsOldSteps) {
  StepCosts costs;
  for (int i = 0; i < 3; ++i) costs.Record(1, StepCosts::Duration(0.010));
  for (int i = 0; i < 600; ++i) costs.Record(4, StepCosts::Duration(0.020));
  EXPECT_FALSE(costs.Measured(1));
  costs.Record(1, StepCosts::Duration(0.030));
  EXPECT_FALSE(costs.Measured(1));
  EXPECT_DOUBLE_EQ(costs.Of(1).value(), 0.030);
}

}  // namespace
}  // namespace triptych::serving::speculation_test
