// Benchmark of overlap: reading the cache of some sequences while the linear layers of others
// compute. Uses layers of the 110M shape in bfloat16 for 32 sequences. "In turn", as in the engine:
// all threads attend, then all multiply. "Overlapped": half of the threads attend half of the
// sequences while the other half multiply for the other sequences; when the shorter part is done,
// all threads share the rest. That is a lower bound of the time of such an engine, because its
// threads never wait.
#include <ATen/ATen.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <iterator>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/backend/cpu/cache_memory.h"
#include "engine/base/ceil_div.h"
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

using Clock = std::chrono::steady_clock;

constexpr int64_t kSequences = 32, kHalf = kSequences / 2;
constexpr int64_t kLayers = 12, kWidth = 768, kHeads = 12, kHeadDim = 64, kIntermediate = 2048;
constexpr int64_t kBlockPositions = 16;
constexpr int kRounds = 9;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class Layers {
 public:
  Layers(int64_t groups, int64_t context, kernels::KernelContext& all)
      : layout_(kernels::GroupedRowLayout(kHeads, groups, kHeadDim, kHeadDim)),
        context_(context),
        blocks_(CeilDiv(context, kBlockPositions)),
        cache_(kSequences * blocks_,
               std::vector<kernels::PagedCache>(kLayers, {.elements = nullptr,
                                                          .format = CacheFormat::kBFloat16,
                                                          .row_width = 2 * groups * kHeadDim,
                                                          .block_positions = kBlockPositions})),
        table_(kSequences * blocks_),
        queries_(kSequences * kWidth, 0.1f),
        x_(kSequences * kIntermediate, 0.1f) {
    std::iota(table_.begin(), table_.end(), 0);
    std::shuffle(table_.begin(), table_.end(), std::mt19937(1));
    const int64_t widest = std::max(2 * kIntermediate, kWidth + 2 * groups * kHeadDim);
    attended_.resize(kSequences * kWidth);
    y_.resize(kSequences * widest);
    const std::vector<std::pair<int64_t, int64_t>> shapes = {
        {kWidth + 2 * groups * kHeadDim, kWidth},  // queries, keys and values
        {kWidth, kWidth},
        {2 * kIntermediate, kWidth},  // gate and up
        {kWidth, kIntermediate}};
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      FillRandom(cache_.layer(layer), kSequences * blocks_);
      for (const auto& [outputs, inputs] : shapes) {
        const at::Tensor weight = at::randn({outputs, inputs});
        products_.emplace_back(
            kernels::PackedLinear::Shape{.groups = 1, .outputs = outputs, .inputs = inputs},
            WeightFormat::kBFloat16,
            std::vector<kernels::PackedLinear::Rows>{
                {TensorFormat::kFloat32, weight.data_ptr(), nullptr, outputs}},
            all.pool);
      }
    }
  }

  // A layer's attention for `count` sequences, one query each.
  void Attend(int64_t layer, int64_t first, int64_t count, kernels::KernelContext& context) {
    std::vector<kernels::TokenRun> runs;
    for (int64_t i = first; i < first + count; ++i) {
      runs.push_back({&table_[i * blocks_], context_ - 1, 1});
    }
    kernels::PagedAttention(&queries_[first * kWidth], kWidth, cache_.layer(layer), layout_,
                            {.scale = 0.1f}, runs, &attended_[first * kWidth], kWidth, context);
  }

  // A layer's linear layers, for `rows` sequences.
  void Multiply(int64_t layer, int64_t rows, kernels::KernelContext& context) {
    const auto per_layer = std::ssize(products_) / kLayers;
    for (int64_t i = layer * per_layer; i < (layer + 1) * per_layer; ++i) {
      products_[i].Apply(x_.data(), rows, y_.data(), context);
    }
  }

 private:
  kernels::PagedRowLayout layout_;
  int64_t context_;
  int64_t blocks_;  // per sequence
  cpu::CacheMemory cache_;
  std::vector<int32_t> table_;  // [kSequences, blocks_]
  std::vector<float> queries_;  // [kSequences, kWidth]
  std::vector<float> attended_;
  std::vector<float> x_;
  std::vector<float> y_;
  std::vector<kernels::PackedLinear> products_;  // four per layer
};

// Seconds of `run(layer)` for all layers.
double Seconds(const std::function<void(int64_t)>& run) {
  const auto start = Clock::now();
  for (int64_t layer = 0; layer < kLayers; ++layer) run(layer);
  return SecondsSince(start);
}

// Seconds of the attention and of the linear layers of all layers and sequences, while both run:
// linear layers repeat until attention is done.
struct Beside {
  double attend;
  double multiply;
};
Beside SecondsBeside(Layers& layers, kernels::KernelContext& attending,
                     kernels::KernelContext& multiplying) {
  std::atomic<bool> done = false;
  int64_t multiplied = 0;  // layers, for half of the sequences
  double multiply_seconds = 0;
  std::thread other([&] {
    const auto start = Clock::now();
    do {
      layers.Multiply(multiplied++ % kLayers, kHalf, multiplying);
    } while (!done);
    multiply_seconds = SecondsSince(start);
  });
  const double attend_seconds = Seconds([&](int64_t layer) {
    layers.Attend(layer, 0, kHalf, attending);
    layers.Attend(layer, kHalf, kHalf, attending);
  });
  done = true;
  other.join();
  return {attend_seconds, multiply_seconds / static_cast<double>(multiplied) * (2.0 * kLayers)};
}

void Compare(const std::string& kind, int64_t groups, int64_t context, int threads) {
  kernels::KernelContext all(threads), attending(threads / 2), multiplying(threads - threads / 2);
  Layers layers(groups, context, all);
  std::vector<double> in_turn, beside, gains, shares;
  for (int round = 0; round <= kRounds; ++round) {
    const double attend = Seconds([&](int64_t layer) { layers.Attend(layer, 0, kSequences, all); });
    const double multiply =
        Seconds([&](int64_t layer) { layers.Multiply(layer, kSequences, all); });
    const Beside at_once = SecondsBeside(layers, attending, multiplying);
    if (round == 0) continue;  // warm-up
    const double shorter = std::min(at_once.attend, at_once.multiply);
    const double left =
        (1 - shorter / at_once.attend) * attend + (1 - shorter / at_once.multiply) * multiply;
    in_turn.push_back(attend + multiply);
    beside.push_back(shorter + left);
    gains.push_back(in_turn.back() / beside.back());
    shares.push_back(attend / in_turn.back());
  }
  std::printf("%-4s  %7lld  %12.0f%%  %10.2f  %9.2f  %6.2f (%.2f to %.2f)\n", kind.c_str(),
              static_cast<long long>(context), 100 * Median(shares), 1e3 * Median(in_turn),
              1e3 * Median(beside), Median(gains), *std::min_element(gains.begin(), gains.end()),
              *std::max_element(gains.begin(), gains.end()));
}

}  // namespace
}  // namespace triptych

int main(int argc, char** argv) {
  const auto threads = static_cast<int>(std::thread::hardware_concurrency());
  try {
    if (argc == 3 && std::string(argv[1]) == "--instruction-set") {
      triptych::UseInstructionSet(std::string(argv[2]));
    } else if (argc != 1) {
      throw std::invalid_argument("allowed: --instruction-set NAME");
    }
    if (threads < 2) throw std::invalid_argument("one CPU; expected: at least 2");
  } catch (const std::invalid_argument& e) {
    std::fprintf(stderr, "overlap_bench: %s\n", e.what());
    return 1;
  }
  std::printf("%s, %s, %d threads; round trip of a word between two threads: %.0f ns\n",
              triptych::tools::ProcessorName().c_str(), triptych::InstructionSetInUse().c_str(),
              threads, 1e9 * triptych::kernels::RoundTripSeconds());
  std::printf("kind  context       attention  in turn ms    overlap  in turn / overlap\n");
  for (const auto& [kind, groups] : {std::pair<std::string, int64_t>{"mha", 12}, {"gqa", 4}}) {
    for (const int64_t context : {128, 512, 1024}) {
      triptych::Compare(kind, groups, context, threads);
    }
  }
  return 0;
}
