// Speed of the engine on the shipped models, without gRPC, and of its kernels.
#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/attention/linear.h"
#include "engine/kernels/threads.h"
#include "engine/serving/hosted_model.h"

namespace triptych {
namespace {

constexpr int64_t kPromptTokens = 64;

class NullSink final : public RequestSink {
 public:
  void OnRejected(SubmitStatus) override {}
  void OnDelta(Delta) override {}
  void OnFinish(Completion) override {}
};

HostedModel Load(const std::string& kind) {
  return LoadHostedModel({.name = kind,
                          .directory = TRIPTYCH_MODELS_DIR "/shakespeare-" + kind,
                          .dtype = {},
                          .kv_dtype = {},
                          .engine = {.kv_cache_bytes = int64_t{1} << 28}});
}

// Prompts of random bytes, so that no two sequences are alike.
void Submit(Engine& engine, int64_t count, int64_t max_new_tokens) {
  static int64_t id = 0;
  static uint64_t seed = 1;
  for (int64_t i = 0; i < count; ++i) {
    Request request;
    request.id = std::to_string(++id);
    for (int64_t p = 0; p < kPromptTokens; ++p) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      request.prompt.push_back(static_cast<int32_t>(seed >> 56));
    }
    request.max_new_tokens = max_new_tokens;
    request.sampling.temperature = 0;
    request.ignore_eos = true;
    engine.Submit(std::move(request), std::make_shared<NullSink>());
  }
}

// One step of `batch` sequences that all decode, at contexts of 64 to 320 positions.
void Decode(benchmark::State& state, const std::string& kind) {
  const int64_t batch = state.range(0);
  const HostedModel model = Load(kind);
  Engine& engine = *model.engine;
  const auto fill = [&] {
    Submit(engine, batch, /*max_new_tokens=*/256);
    while (engine.Stats().positions < batch * kPromptTokens) engine.Step();
  };
  fill();
  for (auto _ : state) {
    engine.Step();
    if (engine.idle()) {
      state.PauseTiming();
      fill();
      state.ResumeTiming();
    }
  }
  state.counters["tokens/s"] = benchmark::Counter(static_cast<double>(state.iterations() * batch),
                                                  benchmark::Counter::kIsRate);
  state.counters["bytes/position"] = static_cast<double>(engine.geometry().BytesPerPosition());
}

// Whole prompts, eight at a time.
void Prefill(benchmark::State& state, const std::string& kind) {
  const HostedModel model = Load(kind);
  constexpr int64_t kPrompts = 8;
  for (auto _ : state) {
    Submit(*model.engine, kPrompts, /*max_new_tokens=*/1);
    while (model.engine->Step()) {
    }
  }
  state.counters["tokens/s"] =
      benchmark::Counter(static_cast<double>(state.iterations() * kPrompts * kPromptTokens),
                         benchmark::Counter::kIsRate);
}

// The product of a linear layer, packed or LibTorch's. Weights of one layer after another, 256 MiB
// or more of them, so that they come from memory if `cached` is false.
void LinearProduct(benchmark::State& state, at::ScalarType dtype, bool packed, bool cached) {
  SetComputeThreads(static_cast<int>(std::thread::hardware_concurrency()));
  const int64_t outputs = state.range(0), inputs = state.range(1), rows = state.range(2);
  const at::Tensor weight = at::randn({outputs, inputs}, at::kFloat).to(dtype);
  const auto bytes = static_cast<int64_t>(weight.nbytes());
  const int64_t copies = cached ? 1 : (int64_t{1} << 28) / bytes + 1;
  std::vector<Linear> layers;
  std::vector<PackedLinear> packed_layers;
  for (int64_t i = 0; i < copies; ++i) {
    if (packed) {
      packed_layers.push_back(Pack({{weight, {}}}));
    } else {
      layers.push_back({weight.clone(), {}});
    }
  }
  const at::Tensor x = at::randn({rows, inputs}, at::kFloat);
  const at::Tensor own_x = x.to(dtype);
  int64_t i = 0;
  for (auto _ : state) {
    const at::Tensor y = packed ? at::empty({rows, outputs}, at::kFloat) : layers[i](own_x);
    if (packed) {
      packed_layers[i].Apply(x.data_ptr<float>(), rows, y.data_ptr<float>(), ComputePool());
    }
    benchmark::DoNotOptimize(y.data_ptr());
    i = (i + 1) % copies;
  }
  SetServingThreads(static_cast<int>(std::thread::hardware_concurrency()));
  const auto rate = [&](double per_iteration) {
    return benchmark::Counter(per_iteration, benchmark::Counter::kIsIterationInvariantRate);
  };
  state.counters["weight bytes/s"] = rate(static_cast<double>(bytes));
  state.counters["FLOP/s"] = rate(2.0 * static_cast<double>(outputs * inputs * rows));
}

void RegisterLinearProducts() {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const bool cached : {true, false}) {
      for (const bool packed : {false, true}) {
        const std::string name = std::string("linear/") + (dtype == at::kFloat ? "f32" : "bf16") +
                                 (cached ? "/cached" : "/memory") + (packed ? "/packed" : "/torch");
        auto* linear = benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
          LinearProduct(state, dtype, packed, cached);
        });
        linear->ArgNames({"out", "in", "rows"})->Unit(benchmark::kMicrosecond)->UseRealTime();
        for (const int64_t rows : {1, 8, 32, 240}) {
          if (cached) {
            linear->Args({256, 672, rows});
          } else {
            linear->Args({2048, 8192, rows});
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace triptych

int main(int argc, char** argv) {
  triptych::SetServingThreads(static_cast<int>(std::thread::hardware_concurrency()));
  for (const std::string kind : {"mha", "gqa", "mla"}) {
    benchmark::RegisterBenchmark(("decode/" + kind).c_str(),
                                 [kind](benchmark::State& state) { triptych::Decode(state, kind); })
        ->ArgName("batch")
        ->Arg(1)
        ->Arg(8)
        ->Arg(32)
        ->Unit(benchmark::kMicrosecond)
        ->UseRealTime();
    benchmark::RegisterBenchmark(
        ("prefill/" + kind).c_str(),
        [kind](benchmark::State& state) { triptych::Prefill(state, kind); })
        ->Unit(benchmark::kMicrosecond)
        ->UseRealTime();
  }
  triptych::RegisterLinearProducts();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
