// Engine whose model computes its steps, but returns given logits.
#ifndef TRIPTYCH_TESTS_BENCH_GIVEN_LOGITS_H_
#define TRIPTYCH_TESTS_BENCH_GIVEN_LOGITS_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/backend/cpu/cpu_model.h"
#include "engine/backend/cpu/pack_weights.h"
#include "engine/base/ceil_div.h"
#include "engine/checkpoint/config/config_file.h"
#include "engine/kernels/context.h"
#include "engine/serving/engine.h"
#include "tests/support/random_model.h"

namespace triptych {

class GivenLogits final : public ModelBackend {
 public:
  using Clock = std::chrono::steady_clock;

  explicit GivenLogits(std::unique_ptr<ModelBackend> model) : model_(std::move(model)) {}

  std::span<const float> Step(const StepInput& step) override {
    const auto start = Clock::now();
    const size_t count = model_->Step(step).size();
    took = Clock::now() - start;
    says_.assign(given.begin(), given.begin() + static_cast<int64_t>(count));
    ended = Clock::now();
    return says_;
  }
  const BackendInfo& info() const override { return model_->info(); }

  std::vector<float> given;  // [batch, vocab]
  Clock::duration took{};    // model time of the last step
  Clock::time_point ended;

 private:
  std::unique_ptr<ModelBackend> model_;
  std::vector<float> says_;
};

inline double Microseconds(GivenLogits::Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

struct CountingSink : serving::RequestSink {
  void OnRejected(serving::SubmitStatus) override {
    throw std::runtime_error("the engine rejected a request");
  }
  void OnDelta(serving::Delta) override { ++tokens; }
  void OnFinish(serving::Completion result) override {
    if (result.reason == serving::FinishReason::kFailed) throw std::runtime_error(result.error);
  }
  int64_t tokens = 0;
};

struct GivenShape {
  int64_t vocab_size;
  int64_t batch;      // sequences at most
  int64_t positions;  // of each
  int threads;
  std::string dtype;  // of the weights
};

struct GivenEngine {
  GivenLogits* model;  // owned by the engine
  std::unique_ptr<serving::Engine> engine;
};

// An engine of the 110M Llama shape with MHA and random weights, except for the vocabulary.
inline GivenEngine MakeGivenEngine(const GivenShape& shape,
                                   std::shared_ptr<const Tokenizer> tokenizer) {
  const ModelConfig config = checkpoint::ParseModelConfig(
      R"({"attention": "mha", "hidden_size": 768, "num_attention_heads": 12,
    "num_hidden_layers": 12, "intermediate_size": 2048, "position_embedding": "rope",
    "norm": "rms_norm", "mlp": "swiglu", "tie_word_embeddings": true, "torch_dtype": "float32",
    "vocab_size": )" +
          std::to_string(shape.vocab_size) +
          ", \"max_position_embeddings\": " + std::to_string(shape.positions) + "}",
      "the 110M shape");
  const auto context = std::make_shared<kernels::KernelContext>(shape.threads);
  const WeightFormat format = Names<WeightFormat>().at(shape.dtype);
  BackendOptions backend{.cache_format = DefaultCacheFormat(format)};
  const CacheGeometry geometry =
      MakeCacheGeometry(config, backend.cache_format, backend.block_positions);
  backend.kv_cache_bytes = shape.batch * geometry.BlockBytes() *
                           CeilDiv(config.max_position_embeddings, backend.block_positions);
  cpu::CpuWeights weights =
      cpu::PackWeights(config, Cast(RandomWeights(config, 1), ToScalarType(TensorsFor(format))),
                       format, {}, context->pool);
  auto model = std::make_unique<GivenLogits>(
      std::make_unique<cpu::CpuModel>(config, std::move(weights), backend, context));
  GivenLogits* const given = model.get();
  return {.model = given,
          .engine = std::make_unique<serving::Engine>(
              std::move(model), std::move(tokenizer),
              serving::EngineOptions{.max_running = shape.batch, .prefix_cache = false},
              serving::EngineClock::now, context)};
}

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_BENCH_GIVEN_LOGITS_H_
