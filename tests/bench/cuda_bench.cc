// cuda_bench [FILTER]: benchmark of decode steps, prefill and the whole engine on a GPU, with
// random weights in published shapes. FILTER selects models whose names contain it.
//
// Decode is reported as a share of the copy bandwidth (reading weights and cache), prefill as a
// share of the rate of a large matrix product.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/backend/cuda/cuda_backend.h"
#include "engine/backend/cuda/cuda_model.h"
#include "engine/base/ceil_div.h"
#include "engine/base/error.h"
#include "engine/serving/engine.h"
#include "engine/text/byte_tokenizer.h"
#include "tests/bench/median.h"

namespace triptych {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kBlock = 16;
constexpr int64_t kMostStepTokens = 2048;
constexpr int kSteps = 12;
constexpr int64_t kEngineTokens = 48;

double Milliseconds(Clock::duration d) {
  return std::chrono::duration<double, std::milli>(d).count();
}

// Random weights, made on the device.
class RandomCudaWeights final : public CudaWeightSource {
 public:
  explicit RandomCudaWeights(const ModelConfig& config) : config_(config) {}

  CudaSharedWeights Shared() override {
    CudaSharedWeights shared;
    // As in trained models, the likeliest tokens get most of the probability.
    shared.final_norm.weight = {.size = config_.hidden_size, .elements = {}, .constant = 6};
    const int64_t width = config_.RotaryDim();
    std::vector<float>& rotation = shared.rotation.elements;
    rotation.resize(config_.max_position_embeddings * width);
    shared.rotation.size = std::ssize(rotation);
    for (int64_t p = 0; p < config_.max_position_embeddings; ++p) {
      for (int64_t i = 0; i < width / 2; ++i) {
        const double angle = static_cast<double>(p) *
                             std::pow(config_.rope_theta,
                                      -2.0 * static_cast<double>(i) / static_cast<double>(width));
        rotation[p * width + i] = static_cast<float>(std::cos(angle));
        rotation[p * width + width / 2 + i] = static_cast<float>(std::sin(angle));
      }
    }
    return shared;
  }
  CudaMatrix Embedding() override { return config_.tie_word_embeddings ? CudaMatrix{} : Output(); }
  CudaMatrix Output() override {
    return {.outputs = config_.vocab_size, .inputs = config_.hidden_size, .elements = {}};
  }
  CudaLayerWeights Layer(int64_t index) override {
    CudaLayerWeights layer = LayerShapes(config_, index);
    std::mt19937_64 generator(static_cast<uint64_t>(index));
    std::normal_distribution<float> normal(0,
                                           1 / std::sqrt(static_cast<float>(config_.hidden_size)));
    layer.router.elements.resize(layer.router.size);
    for (float& element : layer.router.elements) element = normal(generator);
    return layer;
  }
  CudaExpert Expert(int64_t, int64_t) override { return ExpertShapes(config_); }

 private:
  const ModelConfig config_;
};

// A decode case: sequences of one context length, each of which generates a token per step.
struct Decode {
  int64_t batch;
  int64_t context;
};

struct Benched {
  std::string name;
  ModelConfig config;
  std::vector<Decode> decodes;
  std::vector<int64_t> prefills = {2048, 8192};
  int64_t engine_streams = 0;  // 0: the engine is not measured
  std::optional<int64_t> expand_from = {};
};

ModelConfig Shape(int64_t width, int64_t layers, int64_t heads, int64_t groups, int64_t head_dim,
                  int64_t inner, int64_t vocab) {
  ModelConfig config;
  config.vocab_size = vocab;
  config.hidden_size = width;
  config.intermediate_size = inner;
  config.num_hidden_layers = layers;
  config.num_attention_heads = heads;
  config.num_key_value_heads = groups;
  config.head_dim = head_dim;
  config.max_position_embeddings = 16384;
  config.attention = AttentionKind::kGqa;
  config.position_embedding = PositionEmbedding::kRope;
  return config;
}

ModelConfig LatentShapeConfig(ModelConfig config, int64_t rank) {
  config.attention = AttentionKind::kMla;
  config.num_key_value_heads = config.num_attention_heads;
  config.kv_lora_rank.assign(config.num_hidden_layers, rank);
  config.qk_rope_head_dim = 64;
  config.q_lora_rank = 1536;
  config.kv_a_layernorm = true;
  return config;
}

std::vector<Benched> AllModels() {
  std::vector<Benched> all;
  const std::vector<Decode> usual = {{1, 512}, {8, 512}, {64, 512}};
  all.push_back({"1.1B GQA", Shape(2048, 22, 32, 4, 64, 5632, 32000), usual, {2048, 8192}, 64});
  const ModelConfig large = Shape(4096, 32, 32, 8, 128, 14336, 128256);
  all.push_back({"8B GQA", large, {{1, 512}, {8, 512}, {64, 512}, {64, 4096}}, {2048, 8192}, 64});
  const ModelConfig latent = LatentShapeConfig(Shape(4096, 32, 32, 32, 128, 14336, 128256), 512);
  all.push_back({"8B MLA", latent, {{1, 512}, {8, 512}, {64, 512}, {64, 4096}}});
  all.push_back({"8B MLA, prompts reduced", latent, {}, {2048, 8192}, 0, kNeverExpand});
  {
    // The shape of DeepSeek-V2-Lite, 15.7 B weights.
    ModelConfig config = LatentShapeConfig(Shape(2048, 27, 16, 16, 128, 10944, 102400), 512);
    config.q_lora_rank = 0;
    config.experts = {.n_routed_experts = 64,
                      .num_experts_per_tok = 6,
                      .moe_intermediate_size = 1408,
                      .shared_expert_intermediate_size = 2816,
                      .sparse_layers = std::vector<int64_t>(27, 1)};
    config.experts.sparse_layers[0] = 0;
    all.push_back({"16B MLA with experts", config, usual});
  }
  // Latent attention over long contexts, in models with little other work.
  for (const int64_t heads : {16, 32, 64, 128}) {
    ModelConfig config = LatentShapeConfig(Shape(1024, 4, heads, heads, 128, 1024, 1024), 512);
    config.q_lora_rank = 128;
    all.push_back({"latent " + std::to_string(heads) + " heads", config, {{64, 8192}}, {}});
  }
  return all;
}

class Bench {
 public:
  Bench(const Benched& benched, const CudaLimits& limits)
      : benched_(benched), limits_(limits), config_(benched.config) {
    int64_t most = 0;
    for (const int64_t prompt : benched.prefills) most = std::max(most, prompt / kBlock);
    for (const Decode& decode : benched.decodes) {
      most = std::max(most, decode.batch * Blocks(decode.context));
    }
    BackendOptions options{.block_positions = kBlock,
                           .max_step_tokens = kMostStepTokens,
                           .cache_format = CacheFormat::kBFloat16,
                           .expand_from = benched.expand_from};
    options.kv_cache_bytes =
        most * MakeCacheGeometry(config_, options.cache_format, kBlock).BlockBytes();
    const auto begin = Clock::now();
    RandomCudaWeights weights(config_);
    model_ = std::make_unique<CudaModel>(config_, weights, options);
    std::printf("%s: %.2f GB of weights read for a token, loaded in %.1f s; %s\n",
                benched.name.c_str(), static_cast<double>(model_->weight_bytes_read(1)) / 1e9,
                Milliseconds(Clock::now() - begin) / 1e3,
                model_->info().device_memory->kernels.c_str());
    order_.resize(model_->info().blocks);
    std::iota(order_.begin(), order_.end(), 0);
    std::shuffle(order_.begin(), order_.end(), std::mt19937_64(7));
  }

  void Run() {
    for (const int64_t prompt : benched_.prefills) Prefill(prompt);
    for (const Decode& decode : benched_.decodes) Decodes(decode);
    if (benched_.engine_streams > 0) WholeEngine();
  }

 private:
  static int64_t Blocks(int64_t context) { return CeilDiv(context + kSteps + 4, kBlock); }
  int64_t Id(int64_t i) const { return (i * 7919 + 13) % config_.vocab_size; }

  void Prefill(int64_t prompt) {
    std::vector<double> device, wall;
    for (int repeat = 0; repeat < 4; ++repeat) {
      std::vector<double> of_steps, wall_of_steps;
      for (int64_t start = 0; start < prompt; start += kMostStepTokens) {
        StepInput step;
        const int64_t count = std::min(kMostStepTokens, prompt - start);
        for (int64_t i = 0; i < count; ++i) step.ids.push_back(Id(start + i));
        step.sequences.push_back({order_.data(), start, count, prompt});
        step.likely_rows = {count - 1};
        Time(step, true, of_steps, wall_of_steps);
      }
      if (repeat == 0) continue;
      device.push_back(std::accumulate(of_steps.begin(), of_steps.end(), 0.0));
      wall.push_back(std::accumulate(wall_of_steps.begin(), wall_of_steps.end(), 0.0));
    }
    const double ms = Median(device);
    const double products = 2.0 *
                            (static_cast<double>(model_->weight_bytes_read(1)) / 2 -
                             static_cast<double>(config_.vocab_size * config_.hidden_size)) *
                            static_cast<double>(prompt);
    std::printf(
        "  prefill %5ld               %8.3f ms (%8.3f in all) %9.0f tokens/s  %5.1f%% of "
        "the peak by its products\n",
        static_cast<long>(prompt), ms, Median(wall),
        static_cast<double>(prompt) / Median(wall) * 1e3,
        100 * products / (ms / 1e3) / limits_.bfloat16_flops);
    std::fflush(stdout);
  }

  void Decodes(const Decode& decode) {
    const int64_t blocks = Blocks(decode.context);
    std::vector<double> device, wall;
    for (int64_t i = 0; i < kSteps; ++i) {
      StepInput step;
      for (int64_t s = 0; s < decode.batch; ++s) {
        step.ids.push_back(Id(i + s));
        step.sequences.push_back(
            {order_.data() + s * blocks, decode.context + i, 1, decode.context});
        step.likely_rows.push_back(s);
      }
      Time(step, i > 1, device, wall);
    }
    const double ms = Median(device);
    const double bytes = static_cast<double>(model_->weight_bytes_read(decode.batch)) +
                         static_cast<double>(decode.batch * decode.context *
                                             model_->info().geometry.BytesPerPosition());
    const double rate = bytes / (ms / 1e3);
    std::printf(
        "  decode  %5ld at %6ld      %8.3f ms (%8.3f in all) %9.0f tokens/s  %5.1f%% of "
        "the copy (%.0f GB/s)\n",
        static_cast<long>(decode.batch), static_cast<long>(decode.context), ms, Median(wall),
        static_cast<double>(decode.batch) / Median(wall) * 1e3, 100 * rate / limits_.copy_bytes,
        rate / 1e9);
    std::fflush(stdout);
  }

  void Time(const StepInput& step, bool counts, std::vector<double>& device,
            std::vector<double>& wall) {
    const auto start = Clock::now();
    model_->Step(step);
    if (!counts) return;
    wall.push_back(Milliseconds(Clock::now() - start));
    device.push_back(model_->device_milliseconds());
  }

  // Greedy requests, and requests that sample from all tokens.
  void WholeEngine() {
    struct Sink final : serving::RequestSink {
      void OnRejected(serving::SubmitStatus) override {
        throw std::runtime_error("the engine rejected a request");
      }
      void OnDelta(serving::Delta) override {}
      void OnFinish(serving::Completion completion) override {
        if (completion.reason == serving::FinishReason::kFailed)
          throw std::runtime_error(completion.error);
      }
    };
    serving::EngineOptions options;
    options.max_batch_tokens = kMostStepTokens;
    options.prefix_cache = false;
    options.max_slowdown = 1000;
    serving::Engine engine(std::move(model_), std::make_shared<const ByteTokenizer>(), options,
                           serving::EngineClock::now, std::make_shared<kernels::KernelContext>(8));
    for (const float temperature : {0.0f, 1.0f}) {
      for (int64_t r = 0; r < benched_.engine_streams; ++r) {
        serving::Request request;
        request.id = std::to_string(r);
        for (int64_t i = 0; i < 448; ++i)
          request.prompt.push_back(static_cast<int32_t>(Id(i + r) % 256));
        request.max_new_tokens = kEngineTokens;
        request.ignore_eos = true;
        request.sampling.temperature = temperature;
        engine.Submit(request, std::make_shared<Sink>());
      }
      while (engine.decode_step().count() == 0 || engine.Stats().waiting > 0 ||
             Prefilling(engine)) {
        if (!engine.Step()) break;
      }
      std::vector<double> steps;
      while (!engine.idle()) {
        const auto start = Clock::now();
        const int64_t running = engine.Stats().running;
        engine.Step();
        if (running == benched_.engine_streams) steps.push_back(Milliseconds(Clock::now() - start));
      }
      if (steps.empty()) continue;
      std::printf("  engine  %5ld streams, %s %8.3f ms a step           %9.0f tokens/s\n",
                  static_cast<long>(benched_.engine_streams),
                  temperature == 0 ? "greedy" : "drawn ", Median(steps),
                  static_cast<double>(benched_.engine_streams) / Median(steps) * 1e3);
      std::fflush(stdout);
    }
  }

  static bool Prefilling(const serving::Engine& engine) {
    for (const serving::SequenceStats& live : engine.Sequences()) {
      if (live.state != serving::SequenceState::kDecode) return true;
    }
    return false;
  }

  const Benched& benched_;
  const CudaLimits limits_;
  const ModelConfig config_;
  std::unique_ptr<CudaModel> model_;
  std::vector<int32_t> order_;
};

int Main(const std::string& filter) {
  const std::vector<CudaDevice> devices = CudaDevices();
  if (devices.empty()) throw LoadError(WhyNoCudaDevice());
  const CudaLimits limits = MeasureCudaLimits(0);
  std::printf("%s: copy %.0f GB/s read and written, products %.0f TFLOP/s in bfloat16\n",
              devices[0].name.c_str(), limits.copy_bytes / 1e9, limits.bfloat16_flops / 1e12);
  for (const Benched& benched : AllModels()) {
    if (benched.name.find(filter) == std::string::npos) continue;
    Bench(benched, limits).Run();
  }
  return 0;
}

}  // namespace
}  // namespace triptych

int main(int argc, char** argv) {
  try {
    return triptych::Main(argc > 1 ? argv[1] : "");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "cuda_bench: %s\n", e.what());
    return 1;
  }
}
