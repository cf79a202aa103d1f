// Tests of the engine on a model without weights: its steps, their order, and its output.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/serving/engine.h"
#include "engine/text/byte_tokenizer.h"
#include "engine/text/text_stream.h"
#include "tests/support/fake_model.h"
#include "tests/support/recording_sink.h"
#include "tests/support/tokenizer.h"

namespace triptych::serving::engine_on_fake_model_test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// An engine and the model behind it.
class FakeEngine {
 public:
  explicit FakeEngine(const FakeModel::Shape& shape = {}, const EngineOptions& options = {},
                      std::shared_ptr<const Tokenizer> tokenizer = TestTokenizer())
      : shape_(shape) {
    auto owned = std::make_unique<FakeModel>(shape);
    model = owned.get();
    engine = std::make_unique<Engine>(std::move(owned), std::move(tokenizer), options);
  }

  std::shared_ptr<RecordingSink> Submit(const Request& request) {
    const auto sink = std::make_shared<RecordingSink>();
    engine->Submit(request, sink);
    return sink;
  }
  void Run() {
    while (engine->Step()) {
    }
  }
  // Expects the output of a greedy request that ran to its end.
  void ExpectGreedy(const Request& request, const RecordingSink& sink) const {
    ASSERT_TRUE(sink.completion.has_value());
    EXPECT_EQ(sink.completion->reason, FinishReason::kLength) << sink.completion->error;
    std::vector<int32_t> tokens = request.prompt;
    for (const int32_t token : sink.tokens) {
      ASSERT_EQ(token, FakeModel::Next(tokens, shape_, std::ssize(request.prompt)))
          << "request " << request.id;
      tokens.push_back(token);
    }
  }

  FakeModel* model;
  std::unique_ptr<Engine> engine;

 private:
  FakeModel::Shape shape_;
};

Request Greedy(const std::string& id, int64_t prompt, int64_t max_new_tokens) {
  Request request;
  request.id = id;
  std::mt19937 generator(static_cast<uint32_t>(std::hash<std::string>()(id)));
  for (int64_t i = 0; i < prompt; ++i) {
    request.prompt.push_back(static_cast<int32_t>(generator() % 256));
  }
  request.max_new_tokens = max_new_tokens;
  request.sampling.temperature = 0;
  request.ignore_eos = true;
  return request;
}

TEST(EngineOnFakeModel, SequencesGetTheirOwnTokensHoweverTheyAreBatched) {
  for (const int64_t max_batch_tokens : {1, 3, 7, 64}) {
    for (const int64_t blocks : {13, 40}) {
      EngineOptions options;
      options.max_batch_tokens = max_batch_tokens;
      options.max_running = std::min<int64_t>(max_batch_tokens, 5);
      FakeEngine fake({.blocks = blocks}, options);
      std::vector<Request> requests;
      std::vector<std::shared_ptr<RecordingSink>> sinks;
      for (int i = 0; i < 12; ++i) {
        requests.push_back(Greedy(std::to_string(i), 1 + i * 5 % 31, 1 + i * 7 % 23));
        sinks.push_back(fake.Submit(requests.back()));
      }
      fake.Run();
      for (int i = 0; i < 12; ++i) {
        fake.ExpectGreedy(requests[i], *sinks[i]);
        EXPECT_EQ(std::ssize(sinks[i]->tokens), requests[i].max_new_tokens);
      }
      const KvCacheStats stats = fake.engine->Stats();
      EXPECT_EQ(stats.allocated_bytes, 0);
      EXPECT_EQ(stats.free_blocks + stats.evictable_blocks, blocks);
    }
  }
}

// On a GPU, a mixed step takes about as long for one prefill row as for hundreds.
TEST(EngineOnFakeModel, PromptsAreNotCutIntoFewerRowsThanTheModelsLeast) {
  constexpr int64_t kLeast = 40, kPrompt = 100;
  auto owned = std::make_unique<FakeModel>(
      FakeModel::Shape{.max_positions = 512, .blocks = 400, .least_prefill_rows = kLeast});
  EngineClock::time_point now;
  int64_t mixed = 0, decoded = 0;
  std::vector<int64_t> rows;  // of prefill in mixed steps
  owned->before_step = [&](const StepInput& step) {
    int64_t decode = 0;
    for (const StepInput::Sequence& sequence : step.sequences) {
      if (sequence.start >= sequence.prompt) ++decode;
    }
    const bool prefills = std::ssize(step.ids) > decode;
    now += std::chrono::milliseconds(prefills ? 20 : 4);
    if (decode == 0) return;
    if (prefills) rows.push_back(std::ssize(step.ids) - decode);
    ++(prefills ? mixed : decoded);
  };
  Engine engine(std::move(owned), TestTokenizer(), {}, [&] { return now; });
  const auto first = std::make_shared<RecordingSink>(), second = std::make_shared<RecordingSink>();
  engine.Submit(Greedy("decodes", 8, 200), first);
  for (int i = 0; i < 20; ++i) engine.Step();
  engine.Submit(Greedy("waits", kPrompt, 1), second);
  while (!second->completion) engine.Step();
  ASSERT_LE(mixed, (kPrompt + kLeast - 1) / kLeast);
  for (size_t i = 0; i + 1 < rows.size(); ++i) EXPECT_GE(rows[i], kLeast);
  // The decoding request keeps 1 / max_slowdown of its rate, here up to the step under way.
  EXPECT_GE(decoded, 20 + mixed);
}

// A byte tokenizer with additional end tokens.
class EndingTokenizer final : public Tokenizer {
 public:
  explicit EndingTokenizer(std::vector<int32_t> ends) : ends_(std::move(ends)) {}

  std::vector<int32_t> Encode(std::span<const TextPart> parts) const override {
    return bytes_.Encode(parts);
  }
  std::string Decode(int32_t token) const override { return bytes_.Decode(token); }
  std::string_view kind() const override { return "test"; }
  int32_t vocab_size() const override { return bytes_.vocab_size(); }
  std::optional<int32_t> begin_token() const override { return bytes_.begin_token(); }
  std::span<const int32_t> end_tokens() const override { return ends_; }

 private:
  ByteTokenizer bytes_;
  std::vector<int32_t> ends_;
};

// Like Llama 3's models, which have several end tokens: the first one generated ends the text, and
// none is generated before the minimum length.
TEST(EngineOnFakeModel, AnyOfTheEndTokensEndsTheText) {
  Request request = Greedy("r", 5, 30);
  FakeEngine endless;
  const std::vector<int32_t> whole = [&] {
    const auto sink = endless.Submit(request);
    endless.Run();
    return sink->tokens;
  }();
  ASSERT_EQ(whole.size(), 30u);
  request.ignore_eos = false;
  for (const std::vector<int32_t>& ends :
       {std::vector<int32_t>{whole[20], whole[10]}, {kEndToken, whole[10], whole[20]}}) {
    request.min_new_tokens = 0;
    FakeEngine fake({}, {}, std::make_shared<EndingTokenizer>(ends));
    const auto sink = fake.Submit(request);
    fake.Run();
    const auto end = std::find_first_of(whole.begin(), whole.end(), ends.begin(), ends.end());
    ASSERT_NE(end, whole.end());
    EXPECT_EQ(sink->tokens, std::vector<int32_t>(whole.begin(), end + 1));
    EXPECT_EQ(sink->completion->reason, FinishReason::kStop);
    // It is no text, even if it stands for bytes.
    const std::vector<int32_t> before(whole.begin(), end);
    EXPECT_EQ(sink->text, ToValidUtf8(ByteTokenizer().Decode(before)));
    request.min_new_tokens = 30;
    const auto later = fake.Submit(request);
    fake.Run();
    EXPECT_EQ(later->tokens.size(), 30u);
    for (const int32_t token : later->tokens)
      EXPECT_EQ(std::count(ends.begin(), ends.end(), token), 0);
  }
}

// Threads share the rows of logits; each sequence keeps its tokens, log-probabilities and seed.
TEST(EngineOnFakeModel, TokensAreTheSameOnAnyNumberOfThreads) {
  const FakeModel::Shape shape{.vocab_size = 3000};  // enough to share rows among threads
  const std::vector<SamplingParams> params = {{.temperature = 0},
                                              {.temperature = 4},
                                              {.temperature = 4, .top_k = 500, .top_p = 0.9f},
                                              {.temperature = 4, .min_p = 0.001f},
                                              {.temperature = 4, .presence_penalty = 1}};
  std::vector<std::vector<RecordingSink>> all;
  for (const int threads : {1, 3}) {
    Engine engine(std::make_unique<FakeModel>(shape), TestTokenizer(), {}, EngineClock::now,
                  std::make_shared<kernels::KernelContext>(threads));
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    for (int i = 0; i < 15; ++i) {
      Request request = Greedy(std::to_string(i), 1 + i * 3 % 11, 9 + i);
      request.sampling = params[i % params.size()];
      request.seed = i;
      request.logprobs = i % 3;
      if (i % 2 == 0) request.prompt_logprobs = 1;
      sinks.push_back(std::make_shared<RecordingSink>());
      engine.Submit(request, sinks.back());
    }
    while (engine.Step()) {
    }
    all.emplace_back();
    for (const auto& sink : sinks) all.back().push_back(*sink);
  }
  std::set<int32_t> tokens;
  for (size_t i = 0; i < all[0].size(); ++i) {
    const RecordingSink &one = all[0][i], &other = all[1][i];
    ASSERT_EQ(std::ssize(one.tokens), 9 + static_cast<int64_t>(i));
    EXPECT_EQ(other.tokens, one.tokens) << "request " << i;
    EXPECT_EQ(other.prompt_logprobs, one.prompt_logprobs) << "request " << i;
    EXPECT_EQ(one.prompt_logprobs.size(), i % 2 == 0 ? i * 3 % 11 : 0);
    ASSERT_EQ(one.logprobs.size(), one.tokens.size());
    ASSERT_EQ(other.logprobs.size(), other.tokens.size());
    for (size_t j = 0; j < one.logprobs.size(); ++j) {
      EXPECT_EQ(one.logprobs[j].chosen.token, one.tokens[j]);
      EXPECT_EQ(one.logprobs[j].top.size(), i % 3);
      EXPECT_EQ(other.logprobs[j].chosen.logprob, one.logprobs[j].chosen.logprob);
    }
    if (one.tokens != all[0][0].tokens) tokens.insert(one.tokens.begin(), one.tokens.end());
  }
  EXPECT_GT(tokens.size(), 100u);  // sampled
}

TEST(EngineOnFakeModel, AsksForTheRowsOfAStepAndNoOthers) {
  EngineOptions options;
  options.max_batch_tokens = 8;
  FakeEngine fake({}, options);
  std::vector<std::string> steps;
  fake.model->before_step = [&](const StepInput& step) {
    std::string text;
    for (const auto& s : step.sequences) {
      text += std::to_string(s.start) + "+" + std::to_string(s.count) + "/" +
              std::to_string(s.prompt) + " ";
    }
    steps.push_back(text + "-> " + std::to_string(step.logit_rows.size()));
  };
  fake.Submit(Greedy("a", 11, 3));
  fake.Run();
  // A prompt in chunks, whose last row samples; then a token at a time.
  EXPECT_THAT(steps,
              testing::ElementsAre("0+8/11 -> 0", "8+3/11 -> 1", "11+1/11 -> 1", "12+1/11 -> 1"));
}

TEST(EngineOnFakeModel, StateOfAPromptIsReleasedWithThePrompt) {
  EngineOptions options;
  options.max_batch_tokens = 8;
  FakeEngine fake({.expand_from = 10}, options);
  std::vector<bool> kept;
  fake.model->before_step = [&](const StepInput& step) {
    kept.push_back(step.sequences[0].scratch != nullptr);
  };
  // From the first of several steps to the last.
  fake.Submit(Greedy("long", 20, 3));
  fake.engine->Step();
  EXPECT_EQ(fake.model->scratches, 1);
  fake.Run();
  EXPECT_THAT(kept, testing::ElementsAre(true, true, true, false, false));
  EXPECT_EQ(fake.model->scratches, 0);
  // Not for a model that never expands, nor for a prompt of one step.
  kept.clear();
  fake.Submit(Greedy("early", 10, 1));
  fake.Run();
  fake.Submit(Greedy("short", 8, 1));
  fake.Run();
  EXPECT_THAT(kept, testing::Each(false));
  // Cancelled during prefill.
  fake.Submit(Greedy("cancelled", 20, 3));
  fake.engine->Step();
  EXPECT_EQ(fake.model->scratches, 1);
  fake.engine->Cancel("cancelled");
  EXPECT_EQ(fake.model->scratches, 0);
}

TEST(EngineOnFakeModel, AThrowingStepFailsItsOwnRequestsAndFreesTheirBlocks) {
  EngineOptions options;
  options.max_running = 2;
  FakeEngine fake({}, options);
  fake.model->before_step = [&](const StepInput&) {
    if (fake.model->steps == 3) throw std::runtime_error("no such luck");
  };
  const std::vector<Request> requests = {Greedy("a", 6, 9), Greedy("b", 4, 9), Greedy("c", 5, 9)};
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (const Request& request : requests) sinks.push_back(fake.Submit(request));
  fake.Run();
  for (int i : {0, 1}) {
    EXPECT_EQ(sinks[i]->completion->reason, FinishReason::kFailed);
    EXPECT_EQ(sinks[i]->completion->error, "no such luck");
    EXPECT_EQ(sinks[i]->tokens.size(), 2u);
  }
  fake.ExpectGreedy(requests[2], *sinks[2]);
  EXPECT_EQ(fake.engine->Stats().allocated_bytes, 0);
}

TEST(EngineOnFakeModel, IdsThatTheModelHasNotFailTheirStep) {
  FakeEngine fake;
  Request request = Greedy("a", 4, 3);
  request.prompt[1] = 258;
  const auto sink = fake.Submit(request);
  fake.Run();
  EXPECT_EQ(sink->completion->reason, FinishReason::kFailed);
  EXPECT_THAT(sink->completion->error, HasSubstr("token id 258; allowed: 0 to 257"));
}

TEST(EngineOnFakeModel, ChoosesTheSameFromLikelyTokensAsFromWholeRows) {
  std::vector<Request> requests;
  for (int i = 0; i < 7; ++i) requests.push_back(Greedy(std::to_string(i), 5 + i, 9));
  requests[1].sampling = {.temperature = 2, .top_k = 8};
  requests[2].sampling = {.temperature = 9, .top_k = 4, .top_p = 0.9f, .min_p = 0.01f};
  requests[3].logprobs = 5;
  requests[4].sampling.repetition_penalty = 1.5f;  // needs the whole row
  requests[5].sampling.temperature = 0.5f;
  requests[6].prompt_logprobs = 2;
  const auto run = [&](int64_t likely_tokens, int64_t& likely_rows) {
    FakeEngine fake({.likely_tokens = likely_tokens});
    fake.model->before_step = [&](const StepInput& step) {
      likely_rows += std::ssize(step.likely_rows);
    };
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    for (const Request& request : requests) sinks.push_back(fake.Submit(request));
    fake.Run();
    return sinks;
  };
  int64_t none = 0, likely_rows = 0;
  const auto whole = run(0, none);
  const auto likely = run(16, likely_rows);
  EXPECT_EQ(none, 0);
  EXPECT_EQ(likely_rows, 6 * 9);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(whole[i]->tokens, likely[i]->tokens) << i;
    EXPECT_EQ(likely[i]->tokens.size(), 9) << i;
  }
}

TEST(EngineOnFakeModel, ALostDeviceIsTheCallersToHandle) {
  FakeEngine fake;
  const auto sink = fake.Submit(Greedy("a", 5, 9)), other = fake.Submit(Greedy("b", 3, 4));
  fake.model->before_step = [](const StepInput&) { throw DeviceLost("cuda:0: lost"); };
  EXPECT_THROW(fake.engine->Step(), DeviceLost);
  fake.engine->FailAll("cuda:0: lost");
  for (const auto& one : {sink, other}) {
    ASSERT_TRUE(one->completion.has_value());
    EXPECT_EQ(one->completion->reason, FinishReason::kFailed);
    EXPECT_EQ(one->completion->error, "cuda:0: lost");
  }
  EXPECT_TRUE(fake.engine->idle());
  EXPECT_EQ(fake.engine->Stats().allocated_bytes, 0);
  EXPECT_EQ(fake.Submit(Greedy("c", 3, 4))->rejected, SubmitStatus::kStopping);
}

// Bursts, cancellations, failing steps and a pool that is always too small.
TEST(EngineOnFakeModel, RandomRunsLeakNothingAndEndEveryRequestOnce) {
  std::set<FinishReason> reasons;
  int64_t preemptions = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 generator(seed);
    const auto below = [&](uint64_t limit) { return static_cast<int64_t>(generator() % limit); };
    EngineOptions options;
    options.max_batch_tokens = 1 + below(24);
    options.max_running = 1 + below(options.max_batch_tokens);
    options.max_waiting = 1 + below(12);
    FakeModel::Shape shape{.blocks = 13 + below(10)};
    if (below(2) == 0) shape.expand_from = below(20);
    if (below(2) == 0) shape.likely_tokens = 1 + below(20);
    FakeEngine fake(shape, options);
    fake.model->before_step = [&](const StepInput&) {
      if (below(50) == 0) throw std::runtime_error("a failing step");
    };
    std::vector<Request> requests;
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    while (requests.size() < 60 || !fake.engine->idle()) {
      const int64_t action = below(10);
      if (action < 4 && requests.size() < 60) {
        requests.push_back(Greedy(std::to_string(requests.size()), 1 + below(30), 1 + below(30)));
        sinks.push_back(fake.Submit(requests.back()));
      } else if (action == 4 && !requests.empty()) {
        fake.engine->Cancel(std::to_string(below(requests.size())));
      } else {
        fake.engine->Step();
      }
      const KvCacheStats stats = fake.engine->Stats();
      ASSERT_EQ(stats.allocated_bytes + stats.evictable_bytes + stats.free_bytes, stats.pool_bytes);
      int64_t allocated = 0, prompts = 0;  // no two prompts are equal
      for (const SequenceStats& live : fake.engine->Sequences()) {
        allocated += live.kv_cache.allocated_bytes;
        ASSERT_EQ(live.kv_cache.shared_bytes, 0);
        prompts += live.state == SequenceState::kPrefill;
      }
      ASSERT_EQ(allocated, stats.allocated_bytes);
      ASSERT_LE(fake.model->scratches, prompts);
    }
    EXPECT_EQ(fake.engine->Stats().allocated_bytes, 0);
    for (size_t i = 0; i < sinks.size(); ++i) {
      ASSERT_EQ(sinks[i]->final_calls, 1) << i;
      ASSERT_EQ(sinks[i]->late_deltas, 0) << i;
      if (!sinks[i]->completion) continue;
      reasons.insert(sinks[i]->completion->reason);
      if (sinks[i]->completion->reason == FinishReason::kFailed) {
        ASSERT_EQ(sinks[i]->completion->error, "a failing step");
      }
      if (sinks[i]->completion->reason == FinishReason::kLength) {
        fake.ExpectGreedy(requests[i], *sinks[i]);
      }
    }
    preemptions += fake.engine->Stats().preemptions;
  }
  EXPECT_THAT(reasons, testing::ElementsAre(FinishReason::kLength, FinishReason::kCancelled,
                                            FinishReason::kFailed));
  EXPECT_GT(preemptions, 0);
}

TEST(EngineOnFakeModel, CountsTokensAsTheyComeAndTheTimeToTheFirst) {
  EngineClock::time_point now;
  auto model = std::make_unique<FakeModel>(FakeModel::Shape{});
  model->before_step = [&](const StepInput&) { now += std::chrono::milliseconds(1); };
  Engine engine(std::move(model), TestTokenizer(), {}, [&] { return now; });
  now += std::chrono::seconds(5);
  const auto sink = std::make_shared<RecordingSink>();
  for (const std::string id : {"a", "b"}) {
    Request request = Greedy(id, 4, 3);
    request.arrived = now;
    engine.Submit(request, sink);
    ASSERT_TRUE(engine.Step());
  }
  KvCacheStats stats = engine.Stats();
  EXPECT_EQ(stats.uptime, std::chrono::milliseconds(5002));
  EXPECT_EQ(stats.requests.sampled_tokens, 3);  // two of the first request
  EXPECT_EQ(stats.requests.generated_tokens, 0) << "of those that have ended";
  EXPECT_EQ(stats.requests.first_tokens, 2);
  EXPECT_EQ(stats.requests.first_token_time, std::chrono::milliseconds(2));
  while (engine.Step()) {
  }
  stats = engine.Stats();
  EXPECT_EQ(stats.requests.sampled_tokens, 6);
  EXPECT_EQ(stats.requests.generated_tokens, 6);
  EXPECT_EQ(stats.requests.first_tokens, 2);
}

// A byte tokenizer whose "A" is a special token.
class SpecialTokenizer final : public Tokenizer {
 public:
  static constexpr int32_t kSpecial = 'A';

  std::vector<int32_t> Encode(std::span<const TextPart> parts) const override {
    return bytes_.Encode(parts);
  }
  std::string Decode(int32_t token) const override {
    return token == kSpecial ? "" : bytes_.Decode(token);
  }
  std::string_view kind() const override { return "test"; }
  int32_t vocab_size() const override { return bytes_.vocab_size(); }
  std::span<const SpecialToken> special_tokens() const override { return special_; }
  std::optional<int32_t> begin_token() const override { return bytes_.begin_token(); }
  std::span<const int32_t> end_tokens() const override { return bytes_.end_tokens(); }

 private:
  ByteTokenizer bytes_;
  const std::vector<SpecialToken> special_ = {{kSpecial, "<|turn|>"}};
};

TEST(EngineOnFakeModel, StopStringsMatchTheTextOfSpecialTokens) {
  Request request = Greedy("r", 5, 8);
  request.sampling.allowed = {SpecialTokenizer::kSpecial};
  FakeEngine fake({}, {}, std::make_shared<const SpecialTokenizer>());
  const auto run = [&] {
    const auto sink = fake.Submit(request);
    fake.Run();
    return sink;
  };
  EXPECT_EQ(run()->tokens.size(), 8u);
  request.stop = {"<|turn|>"};
  EXPECT_EQ(run()->tokens.size(), 1u);
  EXPECT_EQ(run()->text, "");
  EXPECT_EQ(run()->completion->reason, FinishReason::kStop);
  EXPECT_EQ(run()->completion->stop, "<|turn|>");
  request.include_stop = true;
  EXPECT_EQ(run()->text, "<|turn|>");
  request.include_stop = false;
  request.stop = {"turn|><|t"};
  EXPECT_EQ(run()->tokens.size(), 2u);
  EXPECT_EQ(run()->text, "");
}

TEST(EngineOnFakeModel, ShowsSpecialTokensThatDoNotEndTheText) {
  Request request = Greedy("r", 5, 2);
  request.sampling.allowed = {SpecialTokenizer::kSpecial};
  request.show_special = true;
  FakeEngine fake({}, {}, std::make_shared<const SpecialTokenizer>());
  auto sink = fake.Submit(request);
  fake.Run();
  EXPECT_EQ(sink->text, "<|turn|><|turn|>");
  request.stop_tokens = {SpecialTokenizer::kSpecial};
  sink = fake.Submit(request);
  fake.Run();
  EXPECT_EQ(sink->text, "");
  EXPECT_EQ(sink->completion->reason, FinishReason::kStop);
}

}  // namespace
}  // namespace triptych::serving::engine_on_fake_model_test
