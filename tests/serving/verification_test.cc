// Speculation on CPU kernels: tokens, log-probabilities and cache rows have the bits of plain
// decoding.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/backend/cpu/cpu_model.h"
#include "engine/kernels/paged_rows.h"
#include "engine/serving/engine.h"
#include "tests/support/models_of_each_cache.h"
#include "tests/support/random_model.h"
#include "tests/support/regex_grammar.h"
#include "tests/support/scripted_drafter.h"
#include "tests/support/serving.h"
#include "tests/support/tokenizer.h"

namespace triptych::serving::verification_test {
namespace {

constexpr int64_t kMostPositions = 120;
constexpr int64_t kExpandFrom = 13;

// Output of a request, and the bits of the cache row of each token but the last.
struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  std::vector<std::vector<float>> rows;  // [tokens], each of all layers that hold it

  bool operator==(const Answer& other) const {
    const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
      return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
    };
    return tokens == other.tokens && same(logprobs, other.logprobs) &&
           std::equal(rows.begin(), rows.end(), other.rows.begin(), other.rows.end(), same);
  }
};

class Reader final : public RequestSink {
 public:
  Reader(const Engine& engine, const cpu::CpuModel& model, std::string id)
      : engine_(engine), model_(model), id_(std::move(id)) {}

  void OnRejected(SubmitStatus) override { FAIL(); }
  void OnDelta(Delta delta) override {
    answer.tokens.push_back(delta.token);
    answer.logprobs.push_back(delta.logprobs->chosen.logprob);
    for (const TokenLogprob& top : delta.logprobs->top) answer.logprobs.push_back(top.logprob);
    const Sequence& sequence = *engine_.scheduler().Find(id_).at(0);
    ASSERT_EQ(sequence.computed + 1, sequence.length());
    answer.rows.push_back(RowsAt(sequence, sequence.computed - 1));
  }
  void OnFinish(Completion completion) override {
    EXPECT_NE(completion.reason, FinishReason::kFailed) << completion.error;
    finished = true;
  }

  Answer answer;
  bool finished = false;

 private:
  std::vector<float> RowsAt(const Sequence& sequence, int64_t position) const {
    const CacheGeometry& geometry = engine_.info().geometry;
    const int64_t groups = geometry.Groups().count(), size = geometry.block_positions;
    std::vector<float> rows;
    for (int64_t layer = 0; layer < std::ssize(geometry.row_bytes); ++layer) {
      const int32_t* const blocks = sequence.blocks.blocks().data() + geometry.GroupOf(layer);
      if (blocks[position / size * groups] == BlockTable::kNone) continue;
      const kernels::PagedCache& cache = model_.cache(layer);
      std::vector<float> row(cache.row_width);
      kernels::ReadPagedRows(
          cache, {.blocks = blocks, .start = position, .count = 1, .stride = groups}, row.data());
      rows.insert(rows.end(), row.begin(), row.end());
      std::vector<float> norms(cache.inverse_norms);
      kernels::ReadInverseNorms(cache,
                                {.blocks = blocks, .start = position, .count = 1, .stride = groups},
                                norms.data(), 1);
      rows.insert(rows.end(), norms.begin(), norms.end());
    }
    return rows;
  }

  const Engine& engine_;
  const cpu::CpuModel& model_;
  const std::string id_;
};

std::vector<Request> RandomRequests() {
  std::mt19937_64 generator(3);
  const auto grammar = RegexGrammar("(?:[a-z]{2,9} ){3,12}");
  std::vector<Request> requests(20);
  for (size_t i = 0; i < requests.size(); ++i) {
    Request& request = requests[i];
    request.id = std::to_string(i);
    request.prompt.resize(1 + generator() % 70);
    for (int32_t& token : request.prompt) token = static_cast<int32_t>(generator() % 256);
    request.max_new_tokens = static_cast<int64_t>(20 + generator() % 30);
    request.sampling.temperature = i % 2 == 0 ? 0.0f : 0.8f;
    if (i % 5 == 1) request.sampling.repetition_penalty = 1.3f;
    if (i % 5 == 2) request.grammar = grammar;
    request.seed = generator();
    request.logprobs = 2;
    request.ignore_eos = true;
  }
  return requests;
}

class VerificationTest : public testing::TestWithParam<NamedConfig> {
 protected:
  VerificationTest() : config_(GetParam().config) {
    config_.max_position_embeddings = kMostPositions;
    weights_ = RandomWeights(config_, 1);
  }

  struct Result {
    std::map<std::string, Answer> answers;
    int64_t accepted = 0, rejected = 0, preemptions = 0;
  };

  Result Serve(const std::vector<Request>& requests, WeightFormat format, CacheFormat cache_format,
               int64_t pool_positions, const EngineOptions& options) {
    BackendOptions backend{.cache_format = cache_format, .expand_from = kExpandFrom};
    backend.kv_cache_bytes =
        pool_positions *
        MakeCacheGeometry(config_, cache_format, backend.block_positions).BytesPerPosition();
    auto owned = MakeServingModel(config_, weights_, backend, format);
    const auto& model = dynamic_cast<const cpu::CpuModel&>(*owned);
    Engine engine(std::move(owned), TestTokenizer(), options);
    std::map<std::string, std::shared_ptr<Reader>> sinks;
    for (const Request& request : requests) {
      auto& sink = sinks[request.id] = std::make_shared<Reader>(engine, model, request.id);
      engine.Submit(request, sink);
    }
    while (engine.Step()) {
    }
    Result result;
    for (const auto& [id, sink] : sinks) {
      EXPECT_TRUE(sink->finished);
      result.answers[id] = sink->answer;
    }
    result.accepted = engine.metrics().accepted_tokens.value();
    result.rejected = engine.metrics().drafted_tokens.value() - result.accepted;
    result.preemptions = engine.Stats().preemptions;
    return result;
  }

  void Check(WeightFormat format, CacheFormat cache_format) {
    const std::vector<Request> requests = RandomRequests();
    const Result plain = Serve(requests, format, cache_format, 1 << 13, {});
    for (const int64_t pool_positions : {1 << 13, 400}) {
      EngineOptions options;
      options.speculation = Speculation::kAlways;
      options.make_drafter = [&plain](const Sequence& sequence) {
        const std::vector<int32_t>& tokens = plain.answers.at(sequence.request->id).tokens;
        const int64_t prompt = sequence.prompt_length();
        return std::make_unique<ScriptedDrafter>(
            [&tokens, prompt](std::span<const int32_t> so_far) {
              return std::vector<int32_t>(tokens.begin() + (std::ssize(so_far) - prompt),
                                          tokens.end());
            },
            /*wrong=*/2);
      };
      const Result drafts = Serve(requests, format, cache_format, pool_positions, options);
      EXPECT_GT(drafts.accepted, 100);
      EXPECT_GT(drafts.rejected, 100);
      EXPECT_EQ(drafts.preemptions > 0, pool_positions == 400);
      int64_t different = 0;
      for (const auto& [id, answer] : drafts.answers) different += answer != plain.answers.at(id);
      EXPECT_EQ(different, 0) << "of " << drafts.answers.size() << " answers";
    }
  }

  ModelConfig config_;
  Weights weights_;
};

TEST_P(VerificationTest, Float32) { Check(WeightFormat::kFloat32, CacheFormat::kFloat32); }
TEST_P(VerificationTest, BFloat16) { Check(WeightFormat::kBFloat16, CacheFormat::kBFloat16); }
TEST_P(VerificationTest, Int8) { Check(WeightFormat::kInt8, CacheFormat::kInt8); }
TEST_P(VerificationTest, Int4) { Check(WeightFormat::kInt4, CacheFormat::kInt4); }

INSTANTIATE_TEST_SUITE_P(Models, VerificationTest,
                         testing::ValuesIn(ModelsOfEachCache(/*window=*/30)),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace triptych::serving::verification_test
