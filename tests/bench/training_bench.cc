// Benchmark of a training step in each dtype, compared with its matrix products only: a lower bound
// for any loop over the same library.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/checkpoint/config/config_file.h"
#include "engine/decoder/compute_threads.h"
#include "engine/decoder/tensor_specs.h"
#include "engine/tools/gradients.h"
#include "engine/tools/optimizer.h"
#include "tests/bench/median.h"

namespace triptych {
namespace {

// Median seconds of a run, after a warm-up.
double Seconds(int repetitions, const std::function<void()>& run) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> seconds;
  for (int i = 0; i <= repetitions; ++i) {
    const Clock::time_point start = Clock::now();
    run();
    if (i > 0) seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  return Median(std::move(seconds));
}

// Specs of the matrices that each token is multiplied by.
std::vector<TensorSpec> Matrices(const ModelConfig& config) {
  std::vector<TensorSpec> matrices;
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    if (spec.shape.size() == 2 && spec.name != kPositionsName) matrices.push_back(spec);
  }
  return matrices;
}

// FLOP per token of the linear layers: forward, and gradients of inputs and weights. Attention's
// causal products are not included.
double LinearFlop(const ModelConfig& config) {
  double flop = 0;
  for (const TensorSpec& spec : Matrices(config)) {
    flop += 6.0 * static_cast<double>(spec.shape[0] * spec.shape[1]);
  }
  return flop;
}

class Training {
 public:
  Training(const ModelConfig& config, ComputeType compute, int64_t batch, int64_t window)
      : tokens_(batch * window) {
    for (const TensorSpec& spec : ExpectedTensors(config)) {
      const at::Tensor value = at::randn(spec.shape) * 0.05;
      parameters_.push_back({spec.name, value, {}, at::zeros_like(value), at::zeros_like(value)});
    }
    parts_ = std::min<int64_t>(at::get_num_threads(), batch);
    gradients_.emplace(config, parameters_, compute, tools::Teachers(), parts_);
    const at::Tensor ids = at::randint(config.vocab_size, {batch, window}, at::kLong);
    window_ = {ids, ids};
    const at::ScalarType dtype = ToScalarType(compute);
    for (const TensorSpec& spec : Matrices(config)) {
      factors_.push_back({at::randn(spec.shape).to(dtype),
                          at::randn({tools::kTokensAtOnce, spec.shape[1]}).to(dtype)});
    }
  }

  void Step() {
    gradients_->Compute(window_, /*dropout=*/0.1, generator_, parameters_);
    tools::ClipGradients(parameters_, 1.0);
    tools::AdamW().Step(parameters_, 0, 1e-3);
  }

  // y = x W^T, dy W and dy^T x for every matrix; each thread takes a share of the tokens.
  void Products() const {
    RunOnComputeThreads(parts_, [&](int64_t) {
      const at::NoGradGuard no_grad;
      for (int64_t done = 0; done < tokens_ / parts_; done += tools::kTokensAtOnce) {
        const int64_t tokens = std::min(tools::kTokensAtOnce, tokens_ / parts_ - done);
        for (const Factors& factors : factors_) {
          const at::Tensor x = factors.inputs.narrow(0, 0, tokens);
          const at::Tensor y = at::linear(x, factors.weight);
          at::mm(y, factors.weight);
          at::mm(y.t(), x);
        }
      }
    });
  }

  int64_t tokens() const { return tokens_; }

 private:
  struct Factors {
    at::Tensor weight;  // [outputs, inputs]
    at::Tensor inputs;  // [kTokensAtOnce, inputs]
  };

  std::vector<Factors> factors_;  // one per matrix
  int64_t tokens_;
  int64_t parts_;
  std::vector<tools::Parameter> parameters_;
  std::optional<tools::BatchGradients> gradients_;
  tools::Window window_;
  std::mt19937_64 generator_{1};
};

int Main(int argc, char** argv) {
  CLI::App app("Time of a training step, compared with its matrix products", "training_bench");
  std::filesystem::path file;
  int64_t batch = 16, window = 0;
  int threads = static_cast<int>(std::thread::hardware_concurrency()), repetitions = 5;
  app.add_option("--config", file, "config.json of the model")
      ->required()
      ->check(CLI::ExistingFile);
  app.add_option("--batch-size", batch, "windows per step")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  app.add_option("--window", window, "tokens per window [the full context]");
  app.add_option("--threads", threads, "compute threads")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--repetitions", repetitions, "repetitions; prints their median")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  SetComputeThreads(threads);
  const ModelConfig config = checkpoint::ReadModelConfig(file);
  if (window < 1 || window > config.max_position_embeddings) {
    window = config.max_position_embeddings;
  }
  std::printf("%d threads, %lld windows of %lld tokens\n", threads, static_cast<long long>(batch),
              static_cast<long long>(window));
  for (const ComputeType compute : {ComputeType::kFloat32, ComputeType::kBFloat16}) {
    Training training(config, compute, batch, window);
    const double products = Seconds(repetitions, [&] { training.Products(); });
    const double step = Seconds(repetitions, [&] { training.Step(); });
    const auto tokens = static_cast<double>(training.tokens());
    std::printf(
        "%-8s  %6.0f tokens/s; linear layers %4.0f GFLOP/s, alone %4.0f: their products are "
        "%2.0f%% "
        "of a step\n",
        std::string(Name(compute)).c_str(), tokens / step, tokens * LinearFlop(config) / step / 1e9,
        tokens * LinearFlop(config) / products / 1e9, 100 * products / step);
  }
  return 0;
}

}  // namespace
}  // namespace triptych

int main(int argc, char** argv) {
  try {
    return triptych::Main(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "training_bench: %s\n", e.what());
    return 2;
  }
}
