// Benchmark of the kernels, each compared with its roofline on this machine: min(arithmetic peak,
// read bandwidth * FLOP per byte). The limits are measured in the same run.
#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "engine/backend/cpu/cache_memory.h"
#include "engine/base/ceil_div.h"
#include "engine/base/formats.h"
#include "engine/decoder/compute_threads.h"
#include "engine/decoder/weights.h"
#include "engine/kernels/context.h"
#include "engine/kernels/limits.h"
#include "engine/kernels/packed_linear.h"
#include "engine/kernels/paged_attention.h"
#include "engine/kernels/row_layout.h"
#include "engine/tools/plan/machine.h"
#include "tests/bench/instruction_set.h"
#include "tests/bench/median.h"
#include "tests/bench/random_cache.h"

namespace triptych {
namespace {

constexpr int64_t kBlockPositions = 16;
constexpr int64_t kBeyondCaches = int64_t{1} << 28;  // bytes

int64_t CopiesBeyondCaches(int64_t bytes) { return kBeyondCaches / bytes + 1; }

std::vector<float> RandomNumbers(int64_t count) {
  std::mt19937 generator(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> numbers(count);
  for (float& number : numbers) number = uniform(generator);
  return numbers;
}

// Bytes that an iteration reads from memory, without inputs and outputs, and FLOP.
struct Work {
  double bytes;
  double flops;
  WeightFormat format;  // weights of the products
};

// Probe of the machine's memory, and the kernels' context.
struct Machine {
  kernels::ReadProbe& probe;
  kernels::KernelContext& context;
};

// Times `iterate`, and measures read bandwidth and arithmetic peak next to each iteration. Reports
// the medians of the time, of the least possible time, and of their ratio.
template <typename Iterate>
void Measure(benchmark::State& state, const Machine& machine, const Work& work,
             const Iterate& iterate) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> seconds, memory, arithmetic, least, ratios;
  iterate();  // warm-up
  for (auto _ : state) {
    const auto start = Clock::now();
    iterate();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    state.SetIterationTime(seconds.back());
    memory.push_back(work.bytes / machine.probe.BytesPerSecond());
    arithmetic.push_back(work.flops / kernels::FlopsPerSecond(machine.context.pool, work.format));
    least.push_back(std::max(memory.back(), arithmetic.back()));
    ratios.push_back(least.back() / seconds.back());
  }
  const double median = Median(seconds);
  state.counters["best_us"] = 1e6 * *std::min_element(seconds.begin(), seconds.end());
  state.counters["median_us"] = 1e6 * median;
  state.counters["least_us"] = 1e6 * Median(least);
  state.counters["GB/s"] = work.bytes / median / 1e9;
  state.counters["GFLOP/s"] = work.flops / median / 1e9;
  state.counters["ratio"] = Median(ratios);  // achieved / roofline
  state.SetLabel(Median(memory) > Median(arithmetic) ? "memory" : "arithmetic");
}

// Times linear layers with the outputs, inputs and rows of `state`, whose weights come from memory:
// `apply(index)` computes one of `count` layers, in turn. Small layers are timed in groups that
// have as many weights as a large one.
template <typename Apply>
void MeasureLayers(benchmark::State& state, const Machine& machine, WeightFormat format,
                   size_t count, const Apply& apply) {
  constexpr int64_t kWeightsTogether = int64_t{1} << 24;
  const int64_t outputs = state.range(0), inputs = state.range(1), rows = state.range(2);
  const int64_t together = CeilDiv(kWeightsTogether, outputs * inputs);
  const Work work{.bytes = static_cast<double>(together * WeightBytes(format, inputs, outputs)),
                  .flops = 2.0 * static_cast<double>(together * outputs * inputs * rows),
                  .format = format};
  state.counters["layers"] = static_cast<double>(together);
  size_t layer = 0;
  Measure(state, machine, work, [&] {
    for (int64_t i = 0; i < together; ++i) {
      apply(layer);
      layer = (layer + 1) % count;
    }
  });
}

// Enough layers that none stays in a CPU cache. Valid until the next call with other arguments.
const std::vector<kernels::PackedLinear>& Layers(int64_t outputs, int64_t inputs,
                                                 WeightFormat format, kernels::ThreadPool& pool) {
  static std::vector<kernels::PackedLinear> layers;
  const auto wanted = [&](const kernels::PackedLinear& layer) {
    return layer.format() == format && layer.shape().outputs == outputs &&
           layer.shape().inputs == inputs;
  };
  if (!layers.empty() && wanted(layers.front())) return layers;
  layers.clear();
  const kernels::PackedLinear::Shape shape{.groups = 1, .outputs = outputs, .inputs = inputs};
  const at::Tensor weight = at::randn({outputs, inputs});
  for (int64_t i = 0; i < CopiesBeyondCaches(WeightBytes(format, inputs, outputs)); ++i) {
    layers.push_back(kernels::PackedLinear(
        shape, format, {{TensorFormat::kFloat32, weight.data_ptr(), nullptr, outputs}}, pool));
  }
  return layers;
}

void LinearProduct(benchmark::State& state, const Machine& machine, WeightFormat format) {
  const int64_t outputs = state.range(0), inputs = state.range(1), rows = state.range(2);
  const std::vector<kernels::PackedLinear>& layers =
      Layers(outputs, inputs, format, machine.context.pool);
  const std::vector<float> x = RandomNumbers(rows * inputs);
  std::vector<float> y(rows * outputs);
  MeasureLayers(state, machine, format, layers.size(), [&](size_t layer) {
    layers[layer].Apply(x.data(), rows, y.data(), machine.context);
  });
}

// LibTorch's product, for comparison. Its order of summation can depend on rows and threads.
void LibraryProduct(benchmark::State& state, const Machine& machine, TensorFormat stored) {
  const at::ScalarType dtype = ToScalarType(stored);
  const WeightFormat format = ToWeightFormat(stored);
  const int64_t outputs = state.range(0), inputs = state.range(1);
  std::vector<at::Tensor> layers;
  for (int64_t i = 0; i < CopiesBeyondCaches(WeightBytes(format, inputs, outputs)); ++i) {
    layers.push_back(at::randn({outputs, inputs}, dtype));
  }
  const at::Tensor x = at::randn({state.range(2), inputs}, dtype);
  SetComputeThreads(machine.context.pool.threads());
  MeasureLayers(state, machine, format, layers.size(),
                [&](size_t layer) { at::linear(x, layers[layer]); });
}

// Attention and its cache rows.
struct Kind {
  std::string name;
  kernels::PagedRowLayout layout;
  int64_t row_width;
  int64_t decoupled = 0;  // d_R
};

// Attention of one token over one sequence's scattered blocks. Takes many sequences in turn, so
// that none stays in a CPU cache. Arithmetic is float32 for every dtype of the rows.
void Decode(benchmark::State& state, const Machine& machine, const Kind& kind, CacheFormat format) {
  const kernels::PagedRowLayout& layout = kind.layout;
  const int64_t context = state.range(0);
  const int64_t blocks = CeilDiv(context, kBlockPositions);
  const kernels::PagedCache empty{.elements = nullptr,
                                  .format = format,
                                  .row_width = kind.row_width,
                                  .block_positions = kBlockPositions,
                                  .rotation = CacheRotation(format, layout.value_width),
                                  .wide = format == CacheFormat::kInt4 ? kind.decoupled : 0};
  const int64_t bytes = context * RowBytes(format, empty.stored_elements());
  const int64_t sequences = CopiesBeyondCaches(bytes);
  const cpu::CacheMemory cache(sequences * blocks, {empty});
  FillRandom(cache.layer(0), sequences * blocks);
  std::vector<int32_t> table(sequences * blocks);
  std::iota(table.begin(), table.end(), 0);
  std::shuffle(table.begin(), table.end(), std::mt19937(1));
  const std::vector<float> q = RandomNumbers(layout.heads * layout.key_width);
  std::vector<float> out(layout.heads * layout.value_width);
  int64_t sequence = 0;
  const int64_t widths = layout.key_width + layout.value_width;
  const Work work{.bytes = static_cast<double>(bytes),
                  .flops = 2.0 * static_cast<double>(context * layout.heads * widths),
                  .format = WeightFormat::kFloat32};
  Measure(state, machine, work, [&] {
    const kernels::TokenRun run{&table[sequence * blocks], context - 1,
                                1};  // one query, at the end
    kernels::PagedAttention(q.data(), std::ssize(q), cache.layer(0), layout, {.scale = 0.1f},
                            {&run, 1}, out.data(), std::ssize(out), machine.context);
    sequence = (sequence + 1) % sequences;
  });
}

template <typename Run>
void Register(const std::string& name, const Run& run,
              const std::vector<std::string>& argument_names,
              const std::vector<std::vector<int64_t>>& arguments) {
  auto* registered = benchmark::RegisterBenchmark(name.c_str(), run);
  registered->ArgNames(argument_names)->Unit(benchmark::kMicrosecond)->UseManualTime();
  for (const std::vector<int64_t>& values : arguments) registered->Args(values);
}

void RegisterAll(const Machine& machine) {
  // D = 1024, H = 32; the last as in DeepSeek-V2-Lite.
  const std::vector<Kind> kinds = {
      {"mha", kernels::GroupedRowLayout(32, 32, 32, 32), 2 * 32 * 32},
      {"gqa8", kernels::GroupedRowLayout(32, 8, 32, 32), 2 * 8 * 32},
      {"mla64", kernels::LatentRowLayout(32, 64, 0), 64},
      {"mla512+64", kernels::LatentRowLayout(16, 512, 64), 512 + 64, 64},
  };
  const std::vector<std::string> sizes = {"out", "in", "rows"};
  // A large layer, and a small model's layer.
  const std::vector<std::vector<int64_t>> products = {
      {2048, 8192, 1},   {2048, 8192, 4}, {2048, 8192, 8}, {2048, 8192, 16}, {2048, 8192, 32},
      {2048, 8192, 240}, {768, 768, 1},   {768, 768, 8},   {768, 768, 32}};
  for (const auto& [name, format] : Names<WeightFormat>()) {
    Register(
        "linear/" + name,
        [=, format = format](benchmark::State& state) { LinearProduct(state, machine, format); },
        sizes, products);
  }
  for (const TensorFormat format : {TensorFormat::kFloat32, TensorFormat::kBFloat16}) {
    Register(
        "library_linear/" + std::string(Name(format)),
        [=](benchmark::State& state) { LibraryProduct(state, machine, format); }, sizes, products);
  }
  for (const auto& [name, format] : Names<CacheFormat>()) {
    for (const Kind& kind : kinds) {
      Register(
          "attention/" + kind.name + '/' + name,
          [=, format = format](benchmark::State& state) { Decode(state, machine, kind, format); },
          {"context"}, {{1 << 12}, {1 << 14}, {1 << 16}});
    }
  }
}

void AddContext(const kernels::Limits& limits, const std::string& suffix) {
  const auto add = [&](const std::string& name, double value) {
    benchmark::AddCustomContext(name + suffix, std::to_string(value / 1e9));
  };
  add("read GB/s", limits.read_bytes);
  add("float32 GFLOP/s", limits.float32_flops);
  add("bfloat16 GFLOP/s", limits.bfloat16_flops);
  add("int8 GFLOP/s", limits.int8_flops);
  add("int4 GFLOP/s", limits.int4_flops);
}

}  // namespace
}  // namespace triptych

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  try {
    if (argc == 3 && std::string(argv[1]) == "--instruction-set") {
      triptych::UseInstructionSet(std::string(argv[2]));
    } else if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
      return 1;
    }
  } catch (const std::invalid_argument& e) {
    std::fprintf(stderr, "kernel_bench: %s\n", e.what());
    return 1;
  }
  const int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  triptych::kernels::KernelContext context(threads);
  triptych::kernels::ThreadPool alone(1);
  benchmark::AddCustomContext("processor", triptych::tools::ProcessorName());
  benchmark::AddCustomContext("instruction set", triptych::InstructionSetInUse());
  benchmark::AddCustomContext("threads", std::to_string(threads));
  triptych::AddContext(triptych::kernels::MeasureLimits(context.pool), "");
  triptych::AddContext(triptych::kernels::MeasureLimits(alone), ", one thread");
  if (threads > 1) {
    benchmark::AddCustomContext("round trip ns between threads",
                                std::to_string(1e9 * triptych::kernels::RoundTripSeconds()));
  }
  triptych::kernels::ReadProbe probe(context.pool);
  triptych::RegisterAll({probe, context});
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
