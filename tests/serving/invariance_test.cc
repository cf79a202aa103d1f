// Tests of batch invariance: a request's answer is bit-identical regardless of the engine's other
// work.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/serving/engine.h"
#include "tests/support/models_of_each_cache.h"
#include "tests/support/random_model.h"
#include "tests/support/recording_sink.h"
#include "tests/support/serving.h"

namespace triptych::serving::invariance_test {
namespace {

constexpr int64_t kRequests = 1000;
constexpr int64_t kLongestPrompt = 400;  // two splits of a context
constexpr int64_t kMaxNewTokens = 12;

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;         // of the tokens and the likeliest tokens
  std::vector<float> prompt_logprobs;  // empty unless requested
  bool operator==(const Answer&) const = default;
};

// Mostly short prompts, half of which share a prefix with another; greedy and sampled, generating
// and scoring.
std::vector<Request> RandomRequests(uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::vector<Request> requests(kRequests);
  for (size_t i = 0; i < requests.size(); ++i) {
    Request& request = requests[i];
    request.id = std::to_string(i);
    const int64_t longest = generator() % 20 == 0 ? kLongestPrompt : 40;
    request.prompt.resize(1 + generator() % longest);
    for (int32_t& token : request.prompt) token = static_cast<int32_t>(generator() % 256);
    if (i > 0 && generator() % 2 == 0) {
      const std::vector<int32_t>& other = requests[generator() % i].prompt;
      const size_t same = std::min(other.size(), request.prompt.size());
      std::copy_n(other.begin(), same - generator() % std::min<size_t>(same, 4),
                  request.prompt.begin());
    }
    const bool scores = request.prompt.size() > 1 && generator() % 8 == 0;
    if (scores) request.prompt_logprobs = 0;
    request.max_new_tokens = scores ? 0 : static_cast<int64_t>(1 + generator() % kMaxNewTokens);
    request.sampling.temperature = generator() % 2 == 0 ? 0.0f : 0.8f;
    request.seed = generator();
    request.logprobs = 2;
    request.ignore_eos = true;
  }
  return requests;
}

// How the requests are submitted.
struct Conduct {
  std::string name;
  int threads = 1;
  int64_t max_batch_tokens = 512;
  int64_t max_running = 64;
  int64_t pool_positions = 1 << 15;
  bool one_by_one = false;  // each request after the previous answer; else all, in random order
  bool prefix_cache = true;
};

constexpr int64_t kExpandFrom = 13;

class InvarianceTest : public testing::TestWithParam<NamedConfig> {
 protected:
  InvarianceTest() : config_(GetParam().config) {
    config_.max_position_embeddings = kLongestPrompt + kMaxNewTokens;
    weights_ = RandomWeights(config_, 1);
  }

  // The answers to `requests`, and the number of preemptions.
  std::vector<Answer> Answers(const std::vector<Request>& requests, const Conduct& conduct,
                              WeightFormat format, int64_t* preemptions) {
    EngineSetup options;
    options.expand_from = kExpandFrom;
    options.cache_format = format == WeightFormat::kInt8   ? CacheFormat::kInt8
                           : format == WeightFormat::kInt4 ? CacheFormat::kInt4
                                                           : DefaultCacheFormat(format);
    options.max_batch_tokens = conduct.max_batch_tokens;
    options.max_running = conduct.max_running;
    options.max_waiting = kRequests;
    options.prefix_cache = conduct.prefix_cache;
    options.kv_cache_bytes =
        conduct.pool_positions *
        MakeCacheGeometry(config_, options.cache_format, options.block_positions)
            .BytesPerPosition();
    const auto made = MakeEngine(config_, weights_, options, format, conduct.threads);
    Engine& engine = *made;
    EXPECT_EQ(engine.info().expand_from == kExpandFrom,
              GetParam().name == "MlaExpanded" || GetParam().name == "MlaNormedKeys");
    std::vector<size_t> order(requests.size());
    std::iota(order.begin(), order.end(), 0);
    if (!conduct.one_by_one) std::shuffle(order.begin(), order.end(), std::mt19937_64(7));
    std::vector<std::shared_ptr<RecordingSink>> sinks(requests.size());
    std::mt19937_64 generator(8);
    for (const size_t i : order) {
      sinks[i] = std::make_shared<RecordingSink>();
      engine.Submit(requests[i], sinks[i]);
      if (conduct.one_by_one) {
        while (engine.Step()) {
        }
      } else if (generator() % 4 == 0) {  // some arrive while others run
        engine.Step();
      }
    }
    while (engine.Step()) {
    }
    *preemptions = engine.Stats().preemptions;
    EXPECT_EQ(engine.Stats().requests.cached_prompt_tokens > 0, conduct.prefix_cache);

    std::vector<Answer> answers;
    for (const auto& sink : sinks) {
      EXPECT_TRUE(sink->completion && sink->completion->reason == FinishReason::kLength);
      Answer& answer = answers.emplace_back();
      answer.tokens = sink->tokens;
      for (const TokenLogprobs& token : sink->logprobs) {
        answer.logprobs.push_back(token.chosen.logprob);
        for (const auto& likely : token.top) answer.logprobs.push_back(likely.logprob);
      }
      answer.prompt_logprobs = sink->prompt_logprobs;
    }
    return answers;
  }

  void Check(WeightFormat format) {
    const std::vector<Request> requests = RandomRequests(2);
    int64_t preemptions = 0;
    const std::vector<Answer> alone =
        Answers(requests, {.name = "alone", .one_by_one = true, .prefix_cache = false}, format,
                &preemptions);
    EXPECT_EQ(preemptions, 0);
    for (const Conduct& conduct :
         {Conduct{.name = "in batches"},
          Conduct{.name = "in batches without a prefix cache", .prefix_cache = false},
          Conduct{.name = "one by one", .one_by_one = true},
          Conduct{.name = "in small chunks on two threads",
          .threads = 2,
          .max_batch_tokens = 23,
          .max_running = 9},
          Conduct{.name = "in large batches on three threads",
          .threads = 3,
          .max_batch_tokens = 4096,
          .max_running = 500},
          Conduct{.name = "with too little memory", .pool_positions = 448}}) {
      SCOPED_TRACE(conduct.name);
      const std::vector<Answer> answers = Answers(requests, conduct, format, &preemptions);
      EXPECT_EQ(preemptions > 0, conduct.pool_positions < 1000);
      int64_t different = 0;
      for (size_t i = 0; i < answers.size(); ++i) different += answers[i] != alone[i];
      EXPECT_EQ(different, 0) << "of " << answers.size() << " answers";
    }
  }

  ModelConfig config_;
  Weights weights_;
};

// A conversation whose turns hit the earlier ones in the prefix cache, and one that computes all
// again.
TEST_P(InvarianceTest, TurnsOfAConversation) {
  std::vector<std::vector<int32_t>> conversations;
  for (const bool prefix_cache : {false, true}) {
    EngineSetup options;
    options.expand_from = kExpandFrom;
    options.kv_cache_bytes = 1 << 24;
    options.prefix_cache = prefix_cache;
    const auto engine = MakeEngine(config_, weights_, options, WeightFormat::kBFloat16);
    std::vector<int32_t>& conversation = conversations.emplace_back(20, 65);
    for (int turn = 0; turn < 8; ++turn) {
      Request request;
      request.id = std::to_string(turn);
      request.prompt = conversation;
      request.max_new_tokens = 30;
      request.sampling.temperature = 0.8f;
      request.seed = turn;
      request.ignore_eos = true;
      const auto sink = std::make_shared<RecordingSink>();
      engine->Submit(request, sink);
      while (engine->Step()) {
      }
      conversation.insert(conversation.end(), sink->tokens.begin(), sink->tokens.end());
      conversation.push_back(turn);
      if (turn > 0) {
        EXPECT_EQ(sink->completion->usage.cached_prompt_tokens > 0, prefix_cache);
      }
    }
  }
  EXPECT_EQ(conversations[0], conversations[1]);
}

TEST_P(InvarianceTest, Float32) { Check(WeightFormat::kFloat32); }
TEST_P(InvarianceTest, BFloat16) { Check(WeightFormat::kBFloat16); }
TEST_P(InvarianceTest, Int8) { Check(WeightFormat::kInt8); }
TEST_P(InvarianceTest, Int4) { Check(WeightFormat::kInt4); }

INSTANTIATE_TEST_SUITE_P(Models, InvarianceTest,
                         testing::ValuesIn(ModelsOfEachCache(/*window=*/50)),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace triptych::serving::invariance_test
