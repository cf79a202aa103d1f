// Benchmark of choosing tokens, compared with the model's step before it. The engine chooses for a
// batch of sequences, from given logits that replace the random model's.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/formats.h"
#include "engine/base/version.h"
#include "engine/serving/engine.h"
#include "tests/bench/given_logits.h"
#include "tests/bench/median.h"
#include "tests/support/tokenizer.h"

namespace triptych {
namespace {

struct Options {
  int64_t vocab_size = 151'936;
  int64_t batch = 8;
  int64_t repetitions = 20;
  int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  std::string dtype = "bfloat16";
};

// Positions of a sequence: at most one start per step, then the measured steps.
int64_t Positions(const Options& options) { return options.batch + options.repetitions + 4; }

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

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options) {
    GivenEngine made = MakeGivenEngine({.vocab_size = options.vocab_size,
                                        .batch = options.batch,
                                        .positions = Positions(options),
                                        .threads = options.threads,
                                        .dtype = options.dtype},
                                       TestTokenizer());
    model_ = made.model;
    engine_ = std::move(made.engine);
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
    std::vector<std::shared_ptr<CountingSink>> sinks;
    for (int64_t i = 0; i < options_.batch; ++i) {
      serving::Request request;
      request.id = std::to_string(++requests_);
      request.seed = i;
      request.prompt = {1};
      request.max_new_tokens = Positions(options_);
      request.sampling = params;
      request.logprobs = logprobs;
      request.ignore_eos = true;
      sinks.push_back(std::make_shared<CountingSink>());
      engine_->Submit(std::move(request), sinks.back());
    }
    // Until all sequences decode and the step's buffers are allocated.
    while (std::any_of(sinks.begin(), sinks.end(), [](const auto& s) { return s->tokens < 2; })) {
      engine_->Step();
    }
    std::vector<double> steps, choices;
    for (int64_t i = 0; i < options_.repetitions; ++i) {
      engine_->Step();
      choices.push_back(Microseconds(GivenLogits::Clock::now() - model_->ended));
      steps.push_back(Microseconds(model_->took));
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
