#include "engine/serving/engine.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "engine/backend/cpu/cache_memory.h"
#include "engine/backend/cpu/cpu_model.h"
#include "engine/backend/cpu/pack_weights.h"
#include "engine/backend/cpu/step_cost.h"
#include "engine/backend/tensors/tensor_model.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/decoder/decoder.h"
#include "engine/decoder/tensor_specs.h"
#include "engine/decoder/write_weights.h"
#include "engine/loading/loaded_model.h"
#include "engine/serving/engine_loop.h"
#include "tests/support/allocation_meter.h"
#include "tests/support/random_model.h"
#include "tests/support/recording_sink.h"
#include "tests/support/serving.h"
#include "tests/support/small_gguf.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tensors.h"
#include "tests/support/tokenizer.h"

namespace triptych::serving::engine_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A log-probability is a logit minus the logarithm of a sum; each can be off by 1e-5
// (engine/definitions.md#order-of-summation).
constexpr double kLogprobs = 2e-5;
// If two logits differ by less than this, either token is correct
// (engine/definitions.md#order-of-summation).
constexpr double kOpenGap = 1e-3;

constexpr int64_t kBlockPositions = 4;

std::vector<int32_t> Prompt(int64_t length, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::vector<int32_t> prompt(length);
  for (int32_t& token : prompt) token = static_cast<int32_t>(generator() % 256);
  prompt[0] = kBeginToken;
  return prompt;
}

// Greedy, to the requested length regardless of end tokens, with log-probabilities.
Request Greedy(std::string id, std::vector<int32_t> prompt, int64_t max_new_tokens) {
  Request request;
  request.id = std::move(id);
  request.prompt = std::move(prompt);
  request.max_new_tokens = max_new_tokens;
  request.sampling.temperature = 0;
  request.logprobs = 2;
  request.ignore_eos = true;
  return request;
}

Request Scoring(std::string id, std::vector<int32_t> prompt) {
  Request request = Greedy(std::move(id), std::move(prompt), 0);
  request.prompt_logprobs = 0;
  return request;
}

// Makes greedy decoding choose only among these tokens.
void Allow(const std::string& bytes, Request& request) {
  for (const char byte : bytes) {
    request.sampling.logit_bias[static_cast<unsigned char>(byte)] = 100;
  }
}

// Invariants between any two calls.
void ExpectConsistent(const Engine& engine) {
  const KvCacheStats stats = engine.Stats();
  EXPECT_EQ(stats.pool_bytes, stats.total_blocks * stats.block_bytes);
  EXPECT_EQ(stats.block_bytes, stats.block_positions * stats.bytes_per_position);
  EXPECT_EQ(stats.allocated_bytes + stats.evictable_bytes + stats.free_bytes, stats.pool_bytes);
  EXPECT_EQ(stats.evictable_bytes, stats.evictable_blocks * stats.block_bytes);
  EXPECT_EQ(stats.free_bytes, stats.free_blocks * stats.block_bytes);
  EXPECT_EQ(stats.used_bytes, stats.positions * stats.bytes_per_position);
  EXPECT_LE(stats.used_bytes, stats.allocated_bytes);
  EXPECT_LE(stats.allocated_bytes, stats.peak_allocated_bytes);
  EXPECT_LE(stats.peak_allocated_bytes, stats.pool_bytes);
  int64_t used = 0, allocated = 0, mha = 0, running = 0, waiting = 0;
  for (const SequenceStats& sequence : engine.Sequences()) {
    used += sequence.kv_cache.used_bytes;
    allocated += sequence.kv_cache.allocated_bytes;
    mha += sequence.kv_cache.mha_used_bytes;
    EXPECT_LE(sequence.kv_cache.used_bytes, sequence.kv_cache.allocated_bytes);
    EXPECT_LE(sequence.kv_cache.allocated_bytes, sequence.kv_cache.peak_allocated_bytes);
    EXPECT_EQ(sequence.kv_cache.shared_bytes + sequence.kv_cache.own_bytes,
              sequence.kv_cache.allocated_bytes);
    EXPECT_EQ(sequence.kv_cache.shared_bytes, 0);  // no two prompts begin alike
    // Less than a block is allocated and unused once a step is over.
    EXPECT_LT(sequence.kv_cache.allocated_bytes - sequence.kv_cache.used_bytes, stats.block_bytes);
    ++(sequence.state == SequenceState::kWaiting ? waiting : running);
    if (sequence.state == SequenceState::kWaiting) {
      EXPECT_EQ(sequence.kv_cache.allocated_bytes, 0);
    }
  }
  EXPECT_EQ(used, stats.used_bytes);
  EXPECT_EQ(allocated, stats.allocated_bytes);
  EXPECT_EQ(mha, stats.mha_used_bytes);
  EXPECT_EQ(running, stats.running);
  EXPECT_EQ(waiting, stats.waiting);
}

void ExpectEmpty(const Engine& engine) {
  EXPECT_TRUE(engine.idle());
  EXPECT_THAT(engine.Sequences(), IsEmpty());
  const KvCacheStats stats = engine.Stats();
  EXPECT_EQ(stats.free_blocks + stats.evictable_blocks, stats.total_blocks);
  EXPECT_EQ(stats.allocated_bytes, 0);
  EXPECT_EQ(stats.used_bytes, 0);
  EXPECT_EQ(stats.running + stats.waiting, 0);
}

// A small model, its engine, and a float64 reference.
class EngineFixture {
 public:
  explicit EngineFixture(const ModelConfig& config) : config_(config) {}
  EngineFixture(const ModelConfig& config, Weights weights)
      : config_(config), weights_(std::move(weights)) {}

  EngineSetup Options(int64_t blocks = 200) const {
    EngineSetup options;
    options.block_positions = kBlockPositions;
    options.kv_cache_bytes =
        blocks * MakeCacheGeometry(config_, options.cache_format, kBlockPositions).BlockBytes();
    return options;
  }
  std::unique_ptr<Engine> Make(const EngineSetup& options,
                               ComputeType compute = ComputeType::kFloat32) const {
    return MakeEngine(config_, weights_, options, compute);
  }

  // float64 log-probabilities of the next token after each of `tokens`: [tokens, vocab].
  at::Tensor DenseLogprobs(const std::vector<int32_t>& tokens) const {
    const Decoder decoder(config_, weights_, ComputeType::kFloat64);
    const std::vector<int64_t> ids(tokens.begin(), tokens.end());
    return at::log_softmax(decoder.Forward(ToTensor(ids).unsqueeze(0))[0], -1);
  }

  // Expects a greedy run to match dense float64 computation on its tokens.
  void ExpectGreedy(const Request& request, const RecordingSink& sink) const {
    ASSERT_TRUE(sink.completion.has_value());
    ASSERT_EQ(sink.logprobs.size(), sink.tokens.size());
    std::vector<int32_t> tokens = request.prompt;
    tokens.insert(tokens.end(), sink.tokens.begin(), sink.tokens.end());
    const at::Tensor dense = DenseLogprobs(tokens);
    for (size_t i = 0; i < sink.tokens.size(); ++i) {
      const at::Tensor row = dense[static_cast<int64_t>(request.prompt.size() + i) - 1];
      const TokenLogprobs& reported = sink.logprobs[i];
      EXPECT_EQ(reported.chosen.token, sink.tokens[i]);
      EXPECT_NEAR(reported.chosen.logprob, row[sink.tokens[i]].item<double>(), kLogprobs);
      const auto best = row.max().item<double>();
      EXPECT_LE(best - row[sink.tokens[i]].item<double>(), kOpenGap) << "token " << i;
      ASSERT_EQ(reported.top.size(), 2u);
      EXPECT_NEAR(reported.top[0].logprob, best, kLogprobs);
    }
  }

  const ModelConfig& config() const { return config_; }
  const Weights& weights() const { return weights_; }

 private:
  ModelConfig config_;
  Weights weights_ = RandomWeights(config_, 1);
};

// Expects two runs of one request to be bit-identical.
void ExpectSameRun(const RecordingSink& actual, const RecordingSink& reference) {
  EXPECT_EQ(actual.tokens, reference.tokens);
  EXPECT_EQ(actual.text, reference.text);
  ASSERT_EQ(actual.logprobs.size(), reference.logprobs.size());
  for (size_t i = 0; i < reference.logprobs.size(); ++i) {
    const TokenLogprobs &one = actual.logprobs[i], &other = reference.logprobs[i];
    EXPECT_EQ(one.chosen.logprob, other.chosen.logprob) << i;
    ASSERT_EQ(one.top.size(), other.top.size());
    for (size_t t = 0; t < other.top.size(); ++t) {
      EXPECT_EQ(one.top[t].token, other.top[t].token) << i;
      EXPECT_EQ(one.top[t].logprob, other.top[t].logprob) << i;
    }
  }
}

// Submits all requests, steps until none is left, and checks the engine after every step.
std::vector<std::shared_ptr<RecordingSink>> RunAll(Engine& engine,
                                                   const std::vector<Request>& requests) {
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (const Request& request : requests) {
    engine.Submit(request, sinks.emplace_back(std::make_shared<RecordingSink>()));
  }
  while (engine.Step()) ExpectConsistent(engine);
  for (const auto& sink : sinks) {
    EXPECT_EQ(sink->final_calls, 1);
    EXPECT_EQ(sink->late_deltas, 0);
  }
  ExpectEmpty(engine);
  return sinks;
}

std::shared_ptr<RecordingSink> RunOne(Engine& engine, const Request& request) {
  return RunAll(engine, {request})[0];
}

// Requests with prompts of many lengths, each for `max_new_tokens` tokens.
std::vector<Request> Mixture(int64_t max_new_tokens) {
  std::vector<Request> requests;
  for (const int64_t length : {9, 1, 30, 4, 16, 2, 23}) {
    const std::string id = std::to_string(requests.size());
    requests.push_back(Greedy(id, Prompt(length, 100 + length), max_new_tokens));
  }
  return requests;
}

// EachKind(), and one with experts.
std::vector<NamedConfig> Models() {
  std::vector<NamedConfig> models = EachKind();
  models.push_back({"GqaExperts", SmallExpertsModel(AttentionKind::kGqa)});
  return models;
}

class EngineTest : public testing::TestWithParam<NamedConfig> {
 protected:
  const EngineFixture model_{GetParam().config};
};

// ---- Accounting ----------------------------------------------------------------------------

// Row elements by engine/definitions.md#cache-bytes.
int64_t RowElementsByDefinition(const ModelConfig& config, int64_t layer) {
  switch (config.attention) {
    case AttentionKind::kMha:
      return 2 * config.num_attention_heads * config.head_dim;
    case AttentionKind::kGqa:
      return 2 * config.num_key_value_heads * config.head_dim;
    case AttentionKind::kMla:
      return config.kv_lora_rank[layer] + config.qk_rope_head_dim +
             (config.qk_norm ? config.num_key_value_heads : 0);
  }
  return 0;
}

// Numbers that take two elements each.
int64_t WideByDefinition(const ModelConfig& config, CacheFormat format) {
  const bool mla = config.attention == AttentionKind::kMla;
  return mla && format == CacheFormat::kInt4 ? config.qk_rope_head_dim : 0;
}

TEST(EngineAccounting, BytesAreThoseOfTheRealStorage) {
  for (const NamedConfig& named : EveryOption()) {
    for (const auto& [name, format] : Names<CacheFormat>()) {
      SCOPED_TRACE(named.name + " " + name);
      const ModelConfig& config = named.config;
      const CacheGeometry geometry = MakeCacheGeometry(config, format, 5);
      const std::vector<int64_t> elements = CacheRowElements(config);
      const int64_t norms = config.NormedKeys(), wide = WideByDefinition(config, format);
      std::vector<kernels::PagedCache> layers;
      for (const int64_t numbers : elements) {
        layers.push_back({.elements = nullptr,
                          .format = format,
                          .row_width = numbers - norms,
                          .block_positions = 5,
                          .wide = wide,
                          .inverse_norms = norms});
      }
      const cpu::CacheMemory memory(7, layers);
      int64_t bytes = 0;
      for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
        EXPECT_EQ(elements.at(i), RowElementsByDefinition(config, i));
        EXPECT_EQ(memory.layer(i).block_bytes(), 5 * geometry.row_bytes[i]);
        EXPECT_EQ(RowBytes(format, elements[i] - norms + wide) + 4 * norms,
                  CacheRowBytes(config, i, format));
        EXPECT_EQ(CacheRowBytes(config, i, format), geometry.row_bytes[i]);
        bytes += 7 * 5 * geometry.row_bytes[i];
      }
      EXPECT_EQ(bytes, 7 * geometry.BlockBytes());
      EXPECT_EQ(memory.bytes(), bytes);
      if (IsInteger(format)) continue;
      const TensorModel tensors(config, RandomWeights(config, 2), ComputeType::kFloat64,
                                {.kv_cache_bytes = 7 * geometry.BlockBytes(),
                                 .block_positions = 5,
                                 .cache_format = format});
      EXPECT_EQ(tensors.info().cache_bytes, bytes);
      EXPECT_EQ(tensors.info().blocks, 7);
    }
  }
}

// The tensor backend's memory, by LibTorch's count; allocation_tests counts the CPU backend's.
TEST(EngineAccounting, PoolBytesAreWhatIsAllocated) {
  for (const NamedConfig& named : EveryOption()) {
    for (const CacheFormat format : {CacheFormat::kFloat32, CacheFormat::kBFloat16}) {
      SCOPED_TRACE(named.name);
      EngineSetup options;
      options.kv_cache_bytes = 1'000'000;
      options.cache_format = format;
      options.block_positions = 5;
      const Weights weights = RandomWeights(named.config, 2);
      int64_t least = 0, more = 0;  // bytes besides the pool
      for (int64_t* taken : {&least, &more}) {
        EngineSetup smaller = options;
        smaller.kv_cache_bytes = MakeCacheGeometry(named.config, format, 5).BlockBytes();
        const AllocationMeter meter;
        const auto engine = MakeEngine(named.config, weights, taken == &least ? smaller : options,
                                       ComputeType::kFloat64);
        *taken = meter.total() - engine->Stats().pool_bytes;
      }
      EXPECT_EQ(least, more);
      for (const ComputeType compute : {ComputeType::kFloat32, ComputeType::kFloat64}) {
        const auto engine = MakeEngine(named.config, weights, options, compute);
        const KvCacheStats stats = engine->Stats();
        EXPECT_EQ(engine->info().pool_positions(), stats.total_blocks * 5);
        EXPECT_LE(stats.pool_bytes, options.kv_cache_bytes);
        EXPECT_GT(stats.pool_bytes, options.kv_cache_bytes - stats.block_bytes);
        int64_t per_position = 0;
        const int64_t norms = named.config.NormedKeys();  // in float32
        for (int64_t i = 0; i < named.config.num_hidden_layers; ++i) {
          per_position +=
              RowBytes(format, RowElementsByDefinition(named.config, i) - norms) + 4 * norms;
        }
        EXPECT_EQ(stats.bytes_per_position, per_position);
      }
    }
  }
}

TEST(EngineAccounting, PoolThatHoldsNoBlockIsRefused) {
  const EngineFixture model(SmallModel(AttentionKind::kGqa));
  EngineSetup options = model.Options(1);
  EXPECT_EQ(model.Make(options)->Stats().total_blocks, 1);
  --options.kv_cache_bytes;
  EXPECT_THROW(model.Make(options), LoadError);
}

TEST_P(EngineTest, FinishedRequestHoldsPromptAndGeneratedLessOne) {
  const auto engine = model_.Make(model_.Options());
  const int64_t per_position = engine->info().geometry.BytesPerPosition();
  const int64_t layers = model_.config().num_hidden_layers;
  for (const auto& [prompt, generated] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {5, 1}, {4, 1}, {7, 12}, {1, 40}}) {
    const auto sink = RunOne(*engine, Greedy("r", Prompt(prompt, 3), generated));
    const RequestUsage& usage = sink->completion->usage;
    EXPECT_EQ(usage.prompt_tokens, prompt);
    EXPECT_EQ(usage.generated_tokens, generated);
    EXPECT_EQ(std::ssize(sink->tokens), generated);
    const int64_t positions = prompt + generated - 1;
    const int64_t blocks = (positions + kBlockPositions - 1) / kBlockPositions;
    EXPECT_EQ(usage.kv_cache.positions, positions);
    EXPECT_EQ(usage.kv_cache.bytes_per_position, per_position);
    EXPECT_EQ(usage.kv_cache.used_bytes, positions * per_position);
    EXPECT_EQ(usage.kv_cache.allocated_bytes, blocks * kBlockPositions * per_position);
    EXPECT_EQ(usage.kv_cache.peak_allocated_bytes, usage.kv_cache.allocated_bytes);
    // MHA with the same number of heads: 2D elements of 4 bytes in each layer, D = H * d here.
    EXPECT_EQ(usage.kv_cache.mha_used_bytes,
              positions * layers * 2 * model_.config().hidden_size * 4);
    EXPECT_EQ(usage.preemptions, 0);
    EXPECT_GE(usage.queue_time.count(), 0);
    EXPECT_GE(usage.prefill_time.count(), 0);
    EXPECT_GE(usage.decode_time.count(), 0);
  }
}

TEST_P(EngineTest, LiveSequencesAreReported) {
  EngineSetup options = model_.Options();
  options.max_batch_tokens = 8;
  options.max_running = 2;
  const auto engine = model_.Make(options);
  for (const int64_t length : {3, 20, 5}) {
    engine->Submit(Greedy(std::to_string(length), Prompt(length, 4), 10),
                   std::make_shared<RecordingSink>());
  }
  for (const SequenceStats& sequence : engine->Sequences()) {
    EXPECT_EQ(sequence.state, SequenceState::kWaiting);
  }
  ASSERT_TRUE(engine->Step());  // 3 rows of the first, 5 of the second
  const std::vector<SequenceStats> live = engine->Sequences();
  ASSERT_EQ(live.size(), 3u);
  EXPECT_EQ(live[0].id, "3");
  EXPECT_EQ(live[0].state, SequenceState::kDecode);
  EXPECT_EQ(live[0].generated_tokens, 1);
  EXPECT_EQ(live[0].kv_cache.positions, 3);
  EXPECT_EQ(live[1].state, SequenceState::kPrefill);
  EXPECT_EQ(live[1].prompt_tokens, 20);
  EXPECT_EQ(live[1].generated_tokens, 0);
  EXPECT_EQ(live[1].kv_cache.positions, 5);
  EXPECT_EQ(live[2].state, SequenceState::kWaiting);
  EXPECT_EQ(live[2].kv_cache.positions, 0);
  ExpectConsistent(*engine);
}

// ---- The same result for every schedule ------------------------------------------------------

TEST_P(EngineTest, GreedyEqualsDense) {
  const auto engine = model_.Make(model_.Options());
  const std::vector<Request> requests = Mixture(20);
  const auto sinks = RunAll(*engine, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(requests[i].id);
    EXPECT_EQ(sinks[i]->tokens.size(), 20u);
    EXPECT_EQ(sinks[i]->completion->reason, FinishReason::kLength);
    model_.ExpectGreedy(requests[i], *sinks[i]);
  }
}

TEST_P(EngineTest, BatchChunksAndPreemptionChangeNothing) {
  const std::vector<Request> requests = Mixture(20);
  std::vector<std::shared_ptr<RecordingSink>> alone;
  for (const Request& request : requests) {
    alone.push_back(RunOne(*model_.Make(model_.Options()), request));
  }

  EngineSetup together = model_.Options();
  EngineSetup chunked = model_.Options();
  chunked.max_batch_tokens = 5;
  EngineSetup single_rows = model_.Options();
  single_rows.max_batch_tokens = 1;
  // At the end, the longest needs 13 blocks; all together need 54.
  EngineSetup preempted = model_.Options(14);
  EngineSetup preempted_chunked = model_.Options(15);
  preempted_chunked.max_batch_tokens = 7;
  for (const EngineSetup& options :
       {together, chunked, single_rows, preempted, preempted_chunked}) {
    SCOPED_TRACE("tokens " + std::to_string(options.max_batch_tokens) + ", bytes " +
                 std::to_string(options.kv_cache_bytes));
    const auto engine = model_.Make(options);
    const auto sinks = RunAll(*engine, requests);
    int64_t preemptions = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(requests[i].id);
      model_.ExpectGreedy(requests[i], *sinks[i]);
      ExpectSameRun(*sinks[i], *alone[i]);
      preemptions += sinks[i]->completion->usage.preemptions;
      EXPECT_EQ(sinks[i]->completion->usage.kv_cache.positions,
                std::ssize(requests[i].prompt) + 20 - 1);
    }
    EXPECT_EQ(engine->Stats().preemptions, preemptions);
    EXPECT_EQ(preemptions > 0, options.kv_cache_bytes < together.kv_cache_bytes);
  }
}

TEST_P(EngineTest, PreemptedSequenceHoldsNothingAndKeepsItsPeak) {
  const auto engine = model_.Make(model_.Options(6));
  const auto first = std::make_shared<RecordingSink>(), second = std::make_shared<RecordingSink>();
  engine->Submit(Greedy("first", Prompt(8, 5), 12), first);
  engine->Submit(Greedy("second", Prompt(8, 6), 12), second);
  while (engine->Stats().preemptions == 0) ASSERT_TRUE(engine->Step());
  const std::vector<SequenceStats> live = engine->Sequences();
  ASSERT_EQ(live.size(), 2u);
  EXPECT_EQ(live[1].id, "second");
  EXPECT_EQ(live[1].state, SequenceState::kWaiting);
  EXPECT_EQ(live[1].preemptions, 1);
  EXPECT_EQ(live[1].kv_cache.used_bytes, 0);
  EXPECT_EQ(live[1].kv_cache.allocated_bytes, 0);
  EXPECT_EQ(live[1].kv_cache.peak_allocated_bytes, 3 * engine->info().geometry.BlockBytes());
  EXPECT_GT(live[1].generated_tokens, 0);
  while (engine->Step()) ExpectConsistent(*engine);
  EXPECT_EQ(second->completion->usage.preemptions, 1);
  EXPECT_EQ(second->tokens.size(), 12u);
}

TEST_P(EngineTest, ScoresEqualDense) {
  const std::vector<int64_t> lengths = {1, 2, 17, 64, 33};
  for (const int64_t max_batch_tokens : {512, 6, 1}) {
    EngineSetup options = model_.Options();
    options.max_batch_tokens = max_batch_tokens;
    const auto engine = model_.Make(options);
    std::vector<Request> requests;
    for (const int64_t length : lengths) {
      requests.push_back(Scoring(std::to_string(length), Prompt(length, 7)));
    }
    const auto sinks = RunAll(*engine, requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      const std::vector<int32_t>& prompt = requests[i].prompt;
      const Completion& completion = *sinks[i]->completion;
      EXPECT_EQ(completion.reason, FinishReason::kLength);
      EXPECT_THAT(sinks[i]->tokens, IsEmpty());
      EXPECT_EQ(completion.usage.kv_cache.positions, std::ssize(prompt));
      ASSERT_EQ(sinks[i]->prompt_logprobs.size(), prompt.size() - 1);
      const at::Tensor dense = model_.DenseLogprobs(prompt);
      for (size_t p = 0; p + 1 < prompt.size(); ++p) {
        EXPECT_NEAR(sinks[i]->prompt_logprobs[p],
                    dense[static_cast<int64_t>(p)][prompt[p + 1]].item<double>(), kLogprobs);
      }
    }
  }
}

TEST_P(EngineTest, ScoringAndGeneratingTogetherSurvivesPreemption) {
  std::vector<Request> requests = Mixture(15);
  for (Request& request : requests) request.prompt_logprobs = 0;
  EngineSetup options = model_.Options(12);
  options.max_batch_tokens = 11;
  const auto engine = model_.Make(options);
  const auto sinks = RunAll(*engine, requests);
  EXPECT_GT(engine->Stats().preemptions, 0);
  for (size_t i = 0; i < requests.size(); ++i) {
    const std::vector<int32_t>& prompt = requests[i].prompt;
    model_.ExpectGreedy(requests[i], *sinks[i]);
    const std::vector<float>& scores = sinks[i]->prompt_logprobs;
    ASSERT_EQ(scores.size(), prompt.size() - 1);
    const at::Tensor dense = model_.DenseLogprobs(prompt);
    for (size_t p = 0; p + 1 < prompt.size(); ++p) {
      EXPECT_NEAR(scores[p], dense[static_cast<int64_t>(p)][prompt[p + 1]].item<double>(),
                  kLogprobs);
    }
  }
}

// ---- How a request ends ------------------------------------------------------------------------

TEST_P(EngineTest, EndTokenStopsUnlessIgnored) {
  const auto engine = model_.Make(model_.Options());
  Request request = Greedy("r", Prompt(5, 8), 6);
  request.sampling.logit_bias = {{kEndToken, 1000.0f}};
  request.ignore_eos = false;
  const auto stopped = RunOne(*engine, request);
  EXPECT_EQ(stopped->completion->reason, FinishReason::kStop);
  EXPECT_EQ(stopped->completion->stop, std::nullopt);
  EXPECT_THAT(stopped->tokens, ElementsAre(kEndToken));
  EXPECT_EQ(stopped->text, "");
  request.ignore_eos = true;
  const auto ignored = RunOne(*engine, request);
  EXPECT_EQ(ignored->completion->reason, FinishReason::kLength);
  EXPECT_EQ(ignored->tokens.size(), 6u);
  EXPECT_THAT(ignored->tokens, Each(kEndToken));
}

TEST_P(EngineTest, StopStringsEndTheTextBeforeThem) {
  const auto engine = model_.Make(model_.Options());
  Request request = Greedy("r", Prompt(5, 9), 30);
  Allow("abcdefgh", request);
  const std::string whole = RunOne(*engine, request)->text;
  ASSERT_EQ(whole.size(), 30u);
  for (size_t first = 0; first + 3 <= whole.size(); first += 4) {
    const std::string stop = whole.substr(first, 3);
    request.stop = {"never", stop};
    const auto sink = RunOne(*engine, request);
    const size_t place = whole.find(stop);
    EXPECT_EQ(sink->completion->reason, FinishReason::kStop);
    EXPECT_EQ(sink->completion->stop, stop);
    EXPECT_EQ(sink->text, whole.substr(0, place));
    EXPECT_EQ(sink->tokens.size(), place + 3);
    EXPECT_EQ(sink->completion->usage.kv_cache.positions, 5 + std::ssize(sink->tokens) - 1);
  }
  // Text held back as a possible start of a stop string is emitted at the end.
  request.stop = {whole.substr(27) + "x"};
  const auto sink = RunOne(*engine, request);
  EXPECT_EQ(sink->completion->reason, FinishReason::kLength);
  EXPECT_EQ(sink->completion->stop, std::nullopt);
  EXPECT_EQ(sink->text, whole);
}

TEST_P(EngineTest, UnfinishedCharacterComesOutInTheEnd) {
  const auto engine = model_.Make(model_.Options());
  Request request = Greedy("r", Prompt(5, 10), 3);
  Allow("\xe2", request);  // starts a three-byte character
  EXPECT_EQ(RunOne(*engine, request)->text, "\uFFFD\uFFFD\uFFFD");
}

TEST_P(EngineTest, ContextEndFinishesWithLength) {
  const int64_t context = model_.config().max_position_embeddings;
  const auto engine = model_.Make(model_.Options());
  for (const int64_t length : {context - 1, context - 5, int64_t{1}}) {
    const Request request = Greedy("r", Prompt(length, 11), 1000);
    const auto sink = RunOne(*engine, request);
    EXPECT_EQ(sink->completion->reason, FinishReason::kLength);
    EXPECT_EQ(std::ssize(sink->tokens), context - length);
    model_.ExpectGreedy(request, *sink);
  }
}

TEST_P(EngineTest, LogprobsAreReportedAsAskedFor) {
  const auto engine = model_.Make(model_.Options());
  Request request = Greedy("r", Prompt(5, 12), 4);
  request.logprobs = std::nullopt;
  EXPECT_THAT(RunOne(*engine, request)->logprobs, IsEmpty());
  for (const int32_t top : {0, 1, 7}) {
    request.logprobs = top;
    const auto sink = RunOne(*engine, request);
    ASSERT_EQ(sink->logprobs.size(), 4u);
    for (const TokenLogprobs& logprobs : sink->logprobs) {
      EXPECT_EQ(std::ssize(logprobs.top), top);
      if (top > 0) {
        EXPECT_EQ(logprobs.top[0].token, logprobs.chosen.token);  // greedy
      }
    }
  }
}

TEST_P(EngineTest, SamplingFollowsTheSeed) {
  const auto engine = model_.Make(model_.Options());
  Request request = Greedy("r", Prompt(5, 13), 20);
  request.sampling.temperature = 1;
  request.seed = 7;
  const auto first = RunOne(*engine, request), again = RunOne(*engine, request);
  EXPECT_EQ(first->tokens, again->tokens);
  request.seed = 8;
  EXPECT_NE(RunOne(*engine, request)->tokens, first->tokens);
}

// ---- Refusals, cancellation, failure -----------------------------------------------------------

std::optional<SubmitStatus> Rejection(Engine& engine, const Request& request) {
  const auto sink = std::make_shared<RecordingSink>();
  engine.Submit(request, sink);
  EXPECT_EQ(sink->final_calls, sink->rejected.has_value() ? 1 : 0);
  return sink->rejected;
}

TEST_P(EngineTest, RefusesWhatTheContextCannotHold) {
  const int64_t context = model_.config().max_position_embeddings;
  const auto engine = model_.Make(model_.Options());
  EXPECT_EQ(Rejection(*engine, Greedy("1", Prompt(context, 14), 1)), SubmitStatus::kPromptTooLong);
  EXPECT_EQ(Rejection(*engine, Scoring("2", Prompt(context + 1, 14))),
            SubmitStatus::kPromptTooLong);
  ExpectEmpty(*engine);
  EXPECT_EQ(Rejection(*engine, Scoring("3", Prompt(context, 14))), std::nullopt);
  EXPECT_EQ(Rejection(*engine, Greedy("4", Prompt(context - 1, 14), 1)), std::nullopt);
}

TEST_P(EngineTest, RefusesWhatThePoolNeverHolds) {
  const auto engine = model_.Make(model_.Options(5));  // 20 positions
  EXPECT_EQ(Rejection(*engine, Greedy("1", Prompt(10, 15), 12)), SubmitStatus::kNeverFits);
  EXPECT_EQ(Rejection(*engine, Scoring("2", Prompt(21, 15))), SubmitStatus::kNeverFits);
  const auto sinks = RunAll(
      *engine, {Greedy("3", Prompt(10, 15), 11), Scoring("4", Prompt(20, 15))});  // to the last row
  EXPECT_EQ(sinks[0]->tokens.size(), 11u);
  EXPECT_EQ(sinks[1]->prompt_logprobs.size(), 19u);
}

TEST_P(EngineTest, RefusesBeyondTheQueue) {
  EngineSetup options = model_.Options();
  options.max_waiting = 2;
  const auto engine = model_.Make(options);
  EXPECT_EQ(Rejection(*engine, Greedy("1", Prompt(3, 16), 4)), std::nullopt);
  EXPECT_EQ(Rejection(*engine, Greedy("2", Prompt(3, 16), 4)), std::nullopt);
  EXPECT_EQ(Rejection(*engine, Greedy("3", Prompt(3, 16), 4)), SubmitStatus::kQueueFull);
  EXPECT_TRUE(engine->Step());
  EXPECT_EQ(Rejection(*engine, Greedy("4", Prompt(3, 16), 4)), std::nullopt);
}

TEST_P(EngineTest, StoppingRefusesNewAndFinishesLive) {
  const auto engine = model_.Make(model_.Options());
  const auto live = std::make_shared<RecordingSink>();
  engine->Submit(Greedy("live", Prompt(3, 17), 8), live);
  engine->StopAccepting();
  EXPECT_EQ(Rejection(*engine, Greedy("new", Prompt(3, 17), 8)), SubmitStatus::kStopping);
  while (engine->Step()) continue;
  EXPECT_EQ(live->tokens.size(), 8u);
  ExpectEmpty(*engine);
}

TEST_P(EngineTest, CancelFreesBlocksAtOnce) {
  const auto engine = model_.Make(model_.Options());
  std::map<std::string, std::shared_ptr<RecordingSink>> sinks;
  for (const char* id : {"a", "b", "c"}) {
    engine->Submit(Greedy(id, Prompt(9, 18 + id[0]), 20),
                   sinks[id] = std::make_shared<RecordingSink>());
  }
  engine->Cancel("c");  // never ran
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(engine->Step());
  EXPECT_EQ(engine->Stats().allocated_bytes / engine->Stats().block_bytes, 6);
  engine->Cancel("a");
  engine->Cancel("a");        // again
  engine->Cancel("unknown");  // ignored
  EXPECT_EQ(engine->Stats().allocated_bytes / engine->Stats().block_bytes, 3);
  for (const char* id : {"a", "c"}) {
    ASSERT_EQ(sinks[id]->final_calls, 1);
    EXPECT_EQ(sinks[id]->completion->reason, FinishReason::kCancelled);
  }
  EXPECT_EQ(sinks["a"]->completion->usage.generated_tokens, 3);
  EXPECT_EQ(sinks["a"]->completion->usage.kv_cache.positions, 9 + 3 - 1);
  EXPECT_EQ(sinks["c"]->completion->usage.kv_cache.peak_allocated_bytes, 0);
  while (engine->Step()) ExpectConsistent(*engine);
  EXPECT_EQ(sinks["b"]->tokens.size(), 20u);
  for (const auto& [id, sink] : sinks) EXPECT_EQ(sink->late_deltas, 0);
  ExpectEmpty(*engine);
}

TEST_P(EngineTest, ServesOnLibTorchsOperationsInFloat64) {
  const auto engine = model_.Make(model_.Options(), ComputeType::kFloat64);
  const std::vector<Request> requests = Mixture(8);
  const auto sinks = RunAll(*engine, requests);
  for (size_t i = 0; i < requests.size(); ++i) model_.ExpectGreedy(requests[i], *sinks[i]);
}

// A token without an embedding makes the step throw.
TEST_P(EngineTest, ThrowingStepFailsItsOwnRequestsOnly) {
  EngineSetup options = model_.Options();
  options.max_running = 2;
  const auto engine = model_.Make(options);
  std::vector<int32_t> bad = Prompt(6, 19);
  bad[3] = static_cast<int32_t>(model_.config().vocab_size);
  const Request first = Greedy("bad", bad, 10), second = Greedy("beside", Prompt(6, 21), 10);
  const Request good = Greedy("good", Prompt(6, 20), 10);  // arrives last
  const auto sinks = RunAll(*engine, {first, second, good});
  EXPECT_EQ(sinks[0]->completion->reason, FinishReason::kFailed);
  EXPECT_NE(sinks[0]->completion->error, "");
  EXPECT_EQ(sinks[0]->completion->usage.kv_cache.positions, 0);
  EXPECT_EQ(sinks[1]->completion->reason, FinishReason::kFailed);  // was in that step
  EXPECT_EQ(sinks[2]->completion->reason, FinishReason::kLength);  // was not
  model_.ExpectGreedy(good, *sinks[2]);
  model_.ExpectGreedy(good, *RunOne(*engine, good));
}

TEST_P(EngineTest, RequestsThatWaitOutliveAThrowingStep) {
  EngineSetup options = model_.Options();
  options.max_running = 1;
  const auto engine = model_.Make(options);
  std::vector<int32_t> bad = Prompt(6, 19);
  bad[3] = -1;
  const Request good = Greedy("good", Prompt(6, 20), 10);
  const auto sinks = RunAll(*engine, {Greedy("bad", bad, 10), good});
  EXPECT_EQ(sinks[0]->completion->reason, FinishReason::kFailed);
  EXPECT_EQ(sinks[1]->completion->reason, FinishReason::kLength);
  model_.ExpectGreedy(good, *sinks[1]);
}

// One token's embedding is NaN: requests that contain it fail. Other requests in the batch, and
// requests that get their blocks later, are not affected.
TEST_P(EngineTest, NaNStaysWithItsRequest) {
  constexpr int32_t kPoison = 200;
  Weights weights = RandomWeights(model_.config(), 1);
  weights["model.embed_tokens.weight"][kPoison].fill_(std::nan(""));
  const EngineFixture poisoned(model_.config(), weights);
  std::vector<Request> requests;
  for (int i = 0; i < 12; ++i) {
    std::vector<int32_t> prompt = Prompt(8 + i, 22 + i);
    std::replace(prompt.begin(), prompt.end(), kPoison, 0);
    if (i % 3 == 1) prompt[4] = kPoison;
    requests.push_back(Greedy(std::to_string(i), prompt, 9));
    requests.back().sampling.logit_bias = {{kPoison, -1000.0f}};
  }
  for (const int64_t block_positions : {kBlockPositions, int64_t{16}}) {
    SCOPED_TRACE(block_positions);
    EngineSetup few = poisoned.Options(20);  // so that blocks are used again
    few.block_positions = block_positions;
    const auto sinks = RunAll(*poisoned.Make(few), requests);
    for (int i = 0; i < 12; ++i) {
      SCOPED_TRACE(i);
      if (i % 3 == 1) {
        EXPECT_EQ(sinks[i]->completion->reason, FinishReason::kFailed);
        EXPECT_THAT(sinks[i]->completion->error, HasSubstr("finite"));
      } else {
        EXPECT_EQ(sinks[i]->completion->reason, FinishReason::kLength);
        ExpectSameRun(*sinks[i], *RunOne(*poisoned.Make(poisoned.Options()), requests[i]));
      }
    }
  }
}

// Hundreds of requests of all kinds, cancelled at random, in a pool that is always too small.
TEST_P(EngineTest, RandomRunsLeakNothingAndEndEveryRequestOnce) {
  std::set<FinishReason> reasons;
  std::set<SubmitStatus> rejections;
  int64_t preemptions = 0;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    std::mt19937_64 generator(seed);
    const auto below = [&](uint64_t limit) { return static_cast<int64_t>(generator() % limit); };
    EngineSetup options = model_.Options(10 + below(10));
    options.max_batch_tokens = 1 + below(24);
    options.max_running = 1 + below(6);
    options.max_waiting = 1 + below(12);
    const auto engine = model_.Make(options);
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    std::vector<Request> requests;
    const int64_t count = 150;
    while (std::ssize(requests) < count || !engine->idle()) {
      const int64_t action = below(10);
      if (action < 4 && std::ssize(requests) < count) {
        const int64_t length = 1 + below(below(8) == 0 ? 70 : 14);
        Request request =
            Greedy(std::to_string(requests.size()), Prompt(length, generator()), below(20));
        if (request.max_new_tokens == 0 || below(5) == 0) request.prompt_logprobs = 0;
        request.sampling.temperature = below(2) == 0 ? 0.0f : 1.0f;
        request.ignore_eos = below(2) == 0;
        if (below(4) == 0) {
          Allow("ab", request);
          request.stop = {"a"};
        }
        if (below(40) == 0) request.prompt.back() = 100'000;  // fails its step
        requests.push_back(request);
        engine->Submit(request, sinks.emplace_back(std::make_shared<RecordingSink>()));
      } else if (action == 4 && !requests.empty()) {
        const int64_t recent = std::min<int64_t>(std::ssize(requests), 15);
        engine->Cancel(std::to_string(std::ssize(requests) - 1 - below(recent)));  // if it is live
      } else {
        engine->Step();
      }
      ExpectConsistent(*engine);
    }
    ExpectEmpty(*engine);
    for (size_t i = 0; i < sinks.size(); ++i) {
      const RecordingSink& sink = *sinks[i];
      ASSERT_EQ(sink.final_calls, 1) << i;
      ASSERT_EQ(sink.late_deltas, 0) << i;
      ASSERT_NE(sink.rejected.has_value(), sink.completion.has_value()) << i;
      if (sink.rejected) {
        rejections.insert(*sink.rejected);
        EXPECT_THAT(sink.tokens, IsEmpty());
        continue;
      }
      reasons.insert(sink.completion->reason);
      const RequestUsage& usage = sink.completion->usage;
      EXPECT_EQ(usage.generated_tokens, std::ssize(sink.tokens));
      if (sink.completion->reason == FinishReason::kLength ||
          sink.completion->reason == FinishReason::kStop) {
        EXPECT_EQ(usage.kv_cache.positions,
                  std::ssize(requests[i].prompt) + std::max<int64_t>(usage.generated_tokens, 1) - 1)
            << i;
        EXPECT_EQ(usage.kv_cache.used_bytes,
                  usage.kv_cache.positions * engine->info().geometry.BytesPerPosition());
      }
    }
    preemptions += engine->Stats().preemptions;
  }
  // Requests ended in every way.
  EXPECT_EQ(reasons.size(), 4u);
  EXPECT_EQ(rejections.size(), 3u);  // all except kStopping
  EXPECT_GT(preemptions, 0);
}

INSTANTIATE_TEST_SUITE_P(EachKind, EngineTest, testing::ValuesIn(Models()),
                         testing::PrintToStringParamName());

// ---- Several models ---------------------------------------------------------------------------

// The models of a loop share threads and scratch memory: their steps alternate on one thread.
TEST(EngineModels, ModelsOfOneLoopShareThreadsAndScratch) {
  const auto context = std::make_shared<kernels::KernelContext>(2);
  std::vector<std::unique_ptr<EngineFixture>> models;
  std::vector<std::unique_ptr<Engine>> engines;
  std::vector<Engine*> pointers;
  for (const NamedConfig& named : EachKind()) {
    models.push_back(std::make_unique<EngineFixture>(named.config));
    const EngineSetup setup = models.back()->Options();
    auto model = std::make_unique<cpu::CpuModel>(
        named.config,
        cpu::PackWeights(named.config, Cast(models.back()->weights(), at::kFloat),
                         WeightFormat::kFloat32, {}, context->pool),
        setup, context);
    engines.push_back(std::make_unique<Engine>(std::move(model), TestTokenizer(), setup));
    pointers.push_back(engines.back().get());
  }
  const std::vector<Request> requests = Mixture(8);
  std::vector<std::vector<std::shared_ptr<RecordingSink>>> sinks(engines.size());
  {
    EngineLoop loop(pointers);
    for (size_t i = 0; i < engines.size(); ++i) {
      for (const Request& request : requests) {
        sinks[i].push_back(std::make_shared<RecordingSink>());
        loop.Post([engine = pointers[i], request, sink = sinks[i].back()] {
          engine->Submit(request, sink);
        });
      }
    }
    EXPECT_TRUE(loop.Drain(std::chrono::minutes(5)));
  }
  for (size_t i = 0; i < engines.size(); ++i) {
    for (size_t r = 0; r < requests.size(); ++r) models[i]->ExpectGreedy(requests[r], *sinks[i][r]);
  }
}

// ---- Loading ---------------------------------------------------------------------------------

TEST(LoadedModelTest, LoadsWeightsAndCacheInTheAskedDtypes) {
  ModelConfig config = SmallModel(AttentionKind::kMla);
  config.torch_dtype = TensorFormat::kBFloat16;
  const TempDir directory;
  SaveCheckpoint(directory.path(), config, RandomWeights(config, 2));
  LoadOptions options{.name = "small", .checkpoint = checkpoint::OpenCheckpoint(directory.path())};
  options.backend.kv_cache_bytes = 100'000;
  const auto check = [&](const WeightFormats& weights, CacheFormat cache) {
    const LoadedModel model = LoadModel(options, std::make_shared<kernels::KernelContext>(2));
    EXPECT_EQ(model.name, "small");
    EXPECT_EQ(model.weight_formats, weights);
    EXPECT_EQ(model.cache_format, cache);
    EXPECT_EQ(model.parameters, ParameterCount(config));
    EXPECT_EQ(model.parameter_bytes, ParameterBytes(config, weights));
    EXPECT_EQ(model.engine->Stats().bytes_per_position, 2 * RowBytes(cache, 7));
    EXPECT_EQ(RunOne(*model.engine, Greedy("r", Prompt(5, 23), 6))->tokens.size(), 6u);
  };
  check(WeightFormat::kBFloat16, CacheFormat::kBFloat16);
  options.weights.layers = WeightFormat::kFloat32;
  check(WeightFormat::kFloat32, CacheFormat::kFloat32);
  options.cache_format = CacheFormat::kBFloat16;
  check(WeightFormat::kFloat32, CacheFormat::kBFloat16);
  options.cache_format = std::nullopt;
  options.weights.layers = WeightFormat::kInt8;
  check(WeightFormat::kInt8, CacheFormat::kBFloat16);
  options.weights.layers = WeightFormat::kInt4;
  check(WeightFormat::kInt4, CacheFormat::kBFloat16);
  options.weights.embeddings = WeightFormat::kBFloat16;
  check({WeightFormat::kInt4, WeightFormat::kBFloat16}, CacheFormat::kBFloat16);
  options.weights.layers = std::nullopt;
  options.weights.embeddings = WeightFormat::kInt8;
  check({WeightFormat::kBFloat16, WeightFormat::kInt8}, CacheFormat::kBFloat16);
}

TEST(LoadedModelTest, ExpertsHaveAFormatOfTheirOwn) {
  const TempDir experts_directory, dense_directory;
  const ModelConfig config = SmallExpertsModel(AttentionKind::kGqa);
  SaveCheckpoint(experts_directory.path(), config, RandomWeights(config, 6));
  const ModelConfig dense = SmallModel(AttentionKind::kGqa);
  SaveCheckpoint(dense_directory.path(), dense, RandomWeights(dense, 6));
  const auto load = [](const std::filesystem::path& path, const AskedWeightFormats& weights) {
    LoadOptions options{
        .name = "m", .checkpoint = checkpoint::OpenCheckpoint(path), .weights = weights};
    options.backend.kv_cache_bytes = 100'000;
    return LoadModel(options, std::make_shared<kernels::KernelContext>(1));
  };
  const auto load_experts = [&](const AskedWeightFormats& weights) {
    return load(experts_directory.path(), weights);
  };
  const LoadedModel numbers = load_experts({});
  EXPECT_EQ(numbers.active_parameters, numbers.parameters - 2 * 4 * 3 * 24 * 32);
  const LoadedModel int4 = load_experts({.experts = WeightFormat::kInt4});
  constexpr WeightFormat kFloat32 = WeightFormat::kFloat32;
  EXPECT_EQ(int4.weight_formats, WeightFormats(kFloat32, kFloat32, WeightFormat::kInt4));
  EXPECT_EQ(load_experts({.layers = WeightFormat::kInt8}).weight_formats,
            WeightFormats(WeightFormat::kInt8));
  EXPECT_LT(int4.read_bytes_per_token, numbers.read_bytes_per_token);
  EXPECT_LT(int4.parameter_bytes, numbers.parameter_bytes);
  EXPECT_EQ(RunOne(*int4.engine, Greedy("r", Prompt(5, 23), 6))->tokens.size(), 6u);
  // It does not matter to a model without experts.
  const LoadedModel plain = load(dense_directory.path(), {.experts = WeightFormat::kInt4});
  EXPECT_EQ(plain.weight_formats, WeightFormats(kFloat32));
  EXPECT_EQ(plain.active_parameters, plain.parameters);
}

// A prompt of 5 tokens and 6 generated ones, of which the last is not computed: 10 tokens choose 2
// experts in each of 2 layers.
TEST(EngineExperts, CountTheirTokens) {
  const EngineFixture model(SmallExpertsModel(AttentionKind::kGqa));
  const auto engine = model.Make(model.Options());
  ASSERT_TRUE(engine->expert_load());
  EXPECT_EQ(engine->expert_load()->tokens, 0);
  EXPECT_EQ(engine->expert_load()->untouched, 12);
  RunOne(*engine, Greedy("r", Prompt(5, 23), 6));
  const ExpertLoad load = *engine->expert_load();
  EXPECT_EQ(load.tokens, 10 * 2 * 2);
  EXPECT_LT(load.untouched, 12);
  // A layer's busiest expert has at most all of its 10 tokens, 3 times the mean of 10/3.
  EXPECT_GT(load.most, 1);
  EXPECT_LE(load.most, 3);
  EXPECT_GE(load.least, 0);
  EXPECT_LT(load.least, 1);
  const EngineFixture dense(SmallModel(AttentionKind::kGqa));
  EXPECT_FALSE(dense.Make(dense.Options())->expert_load());
}

// Weights rounded before load and at load are bit-identical.
TEST(LoadedModelTest, ServesStoredIntegersAsTheyAre) {
  for (const NamedConfig& named : EachKind()) {
    if (named.config.attention == AttentionKind::kMla) continue;  // absorbed, then rounded
    for (const WeightFormat format : {WeightFormat::kInt8, WeightFormat::kInt4}) {
      for (const bool embeddings : {true, false}) {
        SCOPED_TRACE(named.name + std::string(Name(format)));
        const Weights weights = Cast(RandomWeights(named.config, 6), at::kFloat);
        ModelConfig integers = named.config;
        integers.quantization = {.format = format, .embeddings = embeddings};
        const TempDir numbers_directory, integers_directory;
        SaveCheckpoint(numbers_directory.path(), named.config, weights);
        SaveCheckpoint(integers_directory.path(), integers, weights);
        LoadOptions at_load{.name = "numbers",
                            .checkpoint = checkpoint::OpenCheckpoint(numbers_directory.path())};
        at_load.backend.kv_cache_bytes = 100'000;
        at_load.weights.layers = format;
        if (!embeddings) at_load.weights.embeddings = WeightFormat::kFloat32;
        LoadOptions stored{.name = "integers",
                           .checkpoint = checkpoint::OpenCheckpoint(integers_directory.path())};
        stored.backend.kv_cache_bytes = 100'000;
        const auto run = [](const LoadOptions& options) {
          const LoadedModel model = LoadModel(options, std::make_shared<kernels::KernelContext>(2));
          Request request = Greedy("r", Prompt(5, 23), 6);
          request.logprobs = 3;
          std::vector<float> logprobs;
          const auto sink = RunOne(*model.engine, request);
          for (const TokenLogprobs& token : sink->logprobs) {
            for (const TokenLogprob& one : token.top) logprobs.push_back(one.logprob);
          }
          EXPECT_EQ(logprobs.size(), 6u * 3);
          return std::tuple(model.weight_formats, model.cache_format, model.parameter_bytes,
                            logprobs);
        };
        EXPECT_TRUE(run(stored) == run(at_load));
      }
    }
  }
}

// The served model's bytes are counted before anything is read.
TEST(LoadedModelTest, CountsTheBytesOfTheServedModel) {
  const std::optional<ConversionSpec> conversions[] = {
      std::nullopt, ConversionSpec{.attention = AttentionKind::kMha},
      ConversionSpec{.attention = AttentionKind::kGqa, .groups = 1},
      ConversionSpec{.attention = AttentionKind::kMla},
      ConversionSpec{.attention = AttentionKind::kMla, .rank = 4, .rope_head_dim = 4}};
  ModelConfig config = SmallModel(AttentionKind::kGqa);
  config.position_embedding = PositionEmbedding::kRope;
  config.torch_dtype = TensorFormat::kBFloat16;
  const TempDir directory;
  SaveCheckpoint(directory.path(), config, RandomWeights(config, 2));
  for (const std::optional<ConversionSpec>& conversion : conversions) {
    for (const std::optional<WeightFormat> format :
         {std::optional<WeightFormat>(), std::optional(WeightFormat::kInt4)}) {
      LoadOptions options{.name = "small",
                          .checkpoint = checkpoint::OpenCheckpoint(directory.path()),
                          .weights = {.layers = format},
                          .conversion = conversion};
      options.backend.kv_cache_bytes = 100'000;
      options.backend.expand_from = 3;
      const LoadedBytes counted = CountLoadedBytes(options);
      const AllocationMeter tensors;
      const LoadedModel model = LoadModel(options, std::make_shared<kernels::KernelContext>(1));
      // Packed weights are not tensors: their bytes leave room for the tensors that are not packed
      // yet.
      EXPECT_LE(tensors.most(), counted.loading + counted.weights);
      EXPECT_EQ(
          counted.weights,
          cpu::CountStep(model.config, model.weight_formats, model.info.expand_from).weight_bytes);
      EXPECT_EQ(counted.prompts, model.info.expand_from ? MostScratchBytes(model.config) : 0);
    }
  }
  LoadOptions options{.name = "small",
                      .checkpoint = checkpoint::OpenCheckpoint(directory.path()),
                      .conversion = ConversionSpec{.attention = AttentionKind::kGqa, .groups = 3}};
  EXPECT_THROW(CountLoadedBytes(options), LoadError);
}

// The opened file is served, even if its name changes.
TEST(LoadedModelTest, AGgufFileIsOpenedOnce) {
  const TempDir directory;
  const std::filesystem::path file = directory.path() / "m.gguf";
  WriteFile(file, SmallGguf());
  LoadOptions options{.name = "small", .checkpoint = checkpoint::OpenCheckpoint(file)};
  options.backend.kv_cache_bytes = 100'000;
  std::filesystem::remove(file);
  const LoadedModel model = LoadModel(options, std::make_shared<kernels::KernelContext>(1));
  EXPECT_EQ(model.tokenizer->vocab_size(), kSmallGgufVocabulary);
  EXPECT_EQ(RunOne(*model.engine, Greedy("r", {1, 260, 261}, 5))->tokens.size(), 5u);
}

// Conversions compute in float32; bfloat16 rounds its largest numbers to infinity.
TEST(LoadedModelTest, RefusesWhatAConversionRoundsToInfinity) {
  const ModelConfig config = SmallModel(AttentionKind::kMha);
  Weights weights = RandomWeights(config, 4);
  weights.at("model.norm.weight")[1].fill_(3.4e38);
  const TempDir directory;
  SaveCheckpoint(directory.path(), config, weights);
  LoadOptions options{.name = "small",
                      .checkpoint = checkpoint::OpenCheckpoint(directory.path()),
                      .weights = {.layers = WeightFormat::kBFloat16},
                      .conversion = ConversionSpec{.attention = AttentionKind::kMla}};
  options.backend.kv_cache_bytes = 100'000;
  try {
    LoadModel(options, std::make_shared<kernels::KernelContext>(1));
    ADD_FAILURE() << "accepted";
  } catch (const LoadError& e) {
    EXPECT_THAT(e.what(), HasSubstr("tensor model.norm.weight, converted, holds numbers that are "
                                    "not finite in bfloat16"));
  }
}

TEST(LoadedModelTest, RefusesAVocabularyTooSmallForTheTokenizer) {
  ModelConfig config = SmallModel(AttentionKind::kMha);
  config.vocab_size = 257;
  const TempDir directory;
  SaveCheckpoint(directory.path(), config, RandomWeights(config, 3));
  LoadOptions options{.name = "small", .checkpoint = checkpoint::OpenCheckpoint(directory.path())};
  options.backend.kv_cache_bytes = 100'000;
  try {
    LoadModel(options, std::make_shared<kernels::KernelContext>(2));
    ADD_FAILURE() << "accepted";
  } catch (const LoadError& e) {
    EXPECT_THAT(e.what(), HasSubstr("vocab_size is 257"));
  }
}

}  // namespace
}  // namespace triptych::serving::engine_test
