// Speed of the engine on the shipped models, without gRPC.
#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <thread>

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

}  // namespace
}  // namespace triptych

int main(int argc, char** argv) {
  triptych::SetComputeThreads(static_cast<int>(std::thread::hardware_concurrency()));
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
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
