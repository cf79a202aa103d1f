// Benchmark of choosing tokens, compared with the model's step before it. The engine chooses for a
// batch of sequences, from given logits that replace the random model's.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/backend/cpu/cpu_model.h"
#include "engine/backend/cpu/pack_weights.h"
#include "engine/base/ceil_div.h"
#include "engine/base/version.h"
#include "engine/checkpoint/config/config_file.h"
#include "engine/kernels/context.h"
#include "engine/serving/engine.h"
#include "tests/bench/median.h"
#include "tests/support/random_model.h"
#include "tests/support/tokenizer.h"

namespace triptych {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  int64_t vocab_size = 151'936;
  int64_t batch = 8;
  int64_t repetitions = 20;
  int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  std::string dtype = "bfloat16";
};

// Computes its model's steps, but returns given logits.
class GivenLogits final : public ModelBackend {
 public:
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

// Positions of a sequence: at most one start per step, then the measured steps.
int64_t Positions(const Options& options) { return options.batch + options.repetitions + 4; }

// The 110M Llama shape with MHA, except for the vocabulary.
ModelConfig Config(const Options& options) {
  const std::string json = R"({"attention": "mha", "hidden_size": 768, "num_attention_heads": 12,
    "num_hidden_layers": 12, "intermediate_size": 2048, "position_embedding": "rope",
    "norm": "rms_norm", "mlp": "swiglu", "tie_word_embeddings": true, "torch_dtype": "float32",
    "vocab_size": )";
  return checkpoint::ParseModelConfig(
      json + std::to_string(options.vocab_size) +
          ", \"max_position_embeddings\": " + std::to_string(Positions(options)) + "}",
      "sampling_bench");
}

enum class Shape { kPeaks, kNormal, kEqual };

std::vector<float> MakeLogits(Shape shape, const Options& options) {
  std::mt19937_64 generator(1);
  std::normal_distribution<float> normal;
  std::vector<float> logits(options.batch * options.vocab_size);
  for (float& logit : logits) {
    logit = shape == Shape::kEqual    ? 1
            : shape == Shape::kNormal ? 4 * normal(generator)
                                      : 3 * normal(generator);
  }
  if (shape != Shape::kPeaks) return logits;
  for (int64_t row = 0; row < options.batch; ++row) {
    for (int i = 0; i < 50; ++i) {
      logits[row * options.vocab_size + generator() % options.vocab_size] =
          22 - 0.2f * static_cast<float>(i) + normal(generator);
    }
  }
  return logits;
}

struct Sink final : serving::RequestSink {
  void OnRejected(serving::SubmitStatus) override {
    throw std::runtime_error("the engine rejected a request");
  }
  void OnDelta(serving::Delta) override { ++tokens; }
  void OnFinish(serving::Completion result) override {
    if (result.reason == serving::FinishReason::kFailed) throw std::runtime_error(result.error);
  }
  int64_t tokens = 0;
};

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options) {
    const auto context = std::make_shared<kernels::KernelContext>(options.threads);
    const ModelConfig config = Config(options);
    const WeightFormat format = Names<WeightFormat>().at(options.dtype);
    BackendOptions backend{.cache_format = DefaultCacheFormat(format)};
    const CacheGeometry geometry =
        MakeCacheGeometry(config, backend.cache_format, backend.block_positions);
    backend.kv_cache_bytes = options.batch * geometry.BlockBytes() *
                             CeilDiv(config.max_position_embeddings, backend.block_positions);
    cpu::CpuWeights weights =
        cpu::PackWeights(config, Cast(RandomWeights(config, 1), ToScalarType(TensorsFor(format))),
                         format, {}, context->pool);
    auto model = std::make_unique<GivenLogits>(
        std::make_unique<cpu::CpuModel>(config, std::move(weights), backend, context));
    model_ = model.get();
    engine_ = std::make_unique<serving::Engine>(
        std::move(model), TestTokenizer(),
        serving::EngineOptions{.max_running = options.batch, .prefix_cache = false},
        serving::EngineClock::now, context);
  }

  void Run() {
    std::printf("vocabulary %lld, batch %lld, %d threads\n",
                static_cast<long long>(options_.vocab_size), static_cast<long long>(options_.batch),
                options_.threads);
    std::printf("%-8s %-22s %10s %12s %6s %14s %6s\n", "logits", "sampling", "step us",
                "sampling us", "%", "+ logprobs us", "%");
    const std::vector<std::pair<std::string, Shape>> shapes = {
        {"peaks", Shape::kPeaks}, {"normal", Shape::kNormal}, {"equal", Shape::kEqual}};
    const std::vector<std::pair<std::string, serving::SamplingParams>> all = {
        {"greedy", {.temperature = 0}},
        {"temperature 0.8", {.temperature = 0.8f}},
        {"top_k 40", {.temperature = 0.8f, .top_k = 40}},
        {"top_p 0.9", {.temperature = 0.8f, .top_p = 0.9f}},
        {"min_p 0.05", {.temperature = 0.8f, .min_p = 0.05f}},
        {"top_k, top_p, min_p", {.temperature = 0.8f, .top_k = 40, .top_p = 0.9f, .min_p = 0.05f}},
        {"top_p, penalty", {.temperature = 0.8f, .top_p = 0.9f, .presence_penalty = 0.5f}}};
    for (const auto& [shape_name, shape] : shapes) {
      model_->given = MakeLogits(shape, options_);
      for (const auto& [name, params] : all) {
        const Times plain = Measure(params, {}), more = Measure(params, 20);
        std::printf("%-8s %-22s %10.0f %12.0f %6.1f %14.0f %6.1f\n", shape_name.c_str(),
                    name.c_str(), plain.step, plain.choice, 100 * plain.choice / plain.step,
                    more.choice, 100 * more.choice / more.step);
        std::fflush(stdout);
      }
    }
  }

 private:
  // Medians, in microseconds.
  struct Times {
    double step;    // the model's step
    double choice;  // the engine's work after it
  };

  Times Measure(const serving::SamplingParams& params, std::optional<int32_t> logprobs) {
    const auto microseconds = [](Clock::duration d) {
      return std::chrono::duration<double, std::micro>(d).count();
    };
    std::vector<std::shared_ptr<Sink>> sinks;
    for (int64_t i = 0; i < options_.batch; ++i) {
      serving::Request request;
      request.id = std::to_string(++requests_);
      request.seed = i;
      request.prompt = {1};
      request.max_new_tokens = Positions(options_);
      request.sampling = params;
      request.logprobs = logprobs;
      request.ignore_eos = true;
      sinks.push_back(std::make_shared<Sink>());
      engine_->Submit(std::move(request), sinks.back());
    }
    // Until all sequences decode and the step's buffers are allocated.
    while (std::any_of(sinks.begin(), sinks.end(), [](const auto& s) { return s->tokens < 2; })) {
      engine_->Step();
    }
    std::vector<double> steps, choices;
    for (int64_t i = 0; i < options_.repetitions; ++i) {
      engine_->Step();
      choices.push_back(microseconds(Clock::now() - model_->ended));
      steps.push_back(microseconds(model_->took));
    }
    engine_->CancelAll();
    return {Median(steps), Median(choices)};
  }

  const Options options_;
  GivenLogits* model_;  // owned by the engine
  std::unique_ptr<serving::Engine> engine_;
  int64_t requests_ = 0;
};

int Main(int argc, char** argv) {
  CLI::App app(
      "Measures what the choice of tokens takes, without and with 20 log-probabilities of each, "
      "beside a step of the 110M Llama shape with so large a vocabulary: medians, and percents of "
      "the model's step.");
  app.set_version_flag("--version", "sampling_bench " + std::string(Version()));
  Options options;
  const auto count = [&](const std::string& flag, auto& value, int64_t most,
                         const std::string& help) {
    app.add_option(flag, value, help)->check(CLI::Range(int64_t{1}, most))->capture_default_str();
  };
  count("--vocab-size", options.vocab_size, 1 << 20, "tokens");
  count("--batch", options.batch, 1024, "decoding sequences");
  count("--repetitions", options.repetitions, 400, "measured steps; prints the medians");
  count("--threads", options.threads, 1024, "compute threads");
  app.add_option("--dtype", options.dtype, "weight format")
      ->check(CLI::IsMember(Names<WeightFormat>()))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  Bench(options).Run();
  return 0;
}

}  // namespace
}  // namespace triptych

int main(int argc, char** argv) {
  try {
    return triptych::Main(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "sampling_bench: %s\n", e.what());
    return 1;
  }
}
