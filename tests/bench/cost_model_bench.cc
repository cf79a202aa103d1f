// Benchmark of ExpansionCost() in engine/backend/cpu/cost_model.h: the cost of expanding an element
// of a key or value, on every instruction set of this machine, and the prompt length from which
// expanded attention is faster than reduced.
#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "engine/attention/latent_attention.h"
#include "engine/attention/rotary.h"
#include "engine/backend/cpu/attention_layer.h"
#include "engine/backend/cpu/cache_memory.h"
#include "engine/backend/cpu/cost_model.h"
#include "engine/backend/cpu/pack.h"
#include "engine/backend/cpu/pack_weights.h"
#include "engine/base/ceil_div.h"
#include "engine/kernels/context.h"
#include "engine/model/latent_shape.h"
#include "tests/bench/instruction_set.h"

namespace triptych {
namespace {

constexpr int64_t kBlockPositions = 16;

// A prompt's attention by an MLA layer with random weights.
class Prompt {
 public:
  Prompt(const LatentShape& shape, int64_t width, kernels::KernelContext& context)
      : width_(width), row_width_(shape.rank + shape.d_rope), context_(context) {
    const auto weight = [](int64_t out, int64_t in) { return at::randn({out, in}) * 0.05; };
    const int64_t heads = shape.heads;
    const LatentWeights weights{.q = {weight(heads * (shape.d_qk + shape.d_rope), width), {}},
                                .kv_a = {weight(row_width_, width), {}},
                                .latent_norm = {},
                                .kv_b = weight(heads * (shape.d_qk + shape.d_v), shape.rank),
                                .o = {weight(width, heads * shape.d_v), {}}};
    std::shared_ptr<const std::vector<float>> rotation;
    if (shape.d_rope > 0) {
      rotation = std::make_shared<const std::vector<float>>(
          cpu::ToFloats(Rotary(1 << 12, shape.d_rope, 1e4).Table()));
    }
    kernels::ThreadPool pool(1);
    attention_ = cpu::PackLatent(shape, Reduce(shape, weights, SmallerForm(shape, width)),
                                 WeightFormat::kFloat32, rotation, /*expand=*/true, pool);
  }

  // The shortest measured time of attending a new prompt.
  double Seconds(int64_t length, bool vanilla) const {
    using Clock = std::chrono::steady_clock;
    const int64_t blocks = CeilDiv(length, kBlockPositions);
    const cpu::CacheMemory cache(blocks,
                                 {{nullptr, CacheFormat::kFloat32, row_width_, kBlockPositions}});
    std::vector<int32_t> table(blocks);
    std::iota(table.begin(), table.end(), 0);
    cpu::LayerStep step{.positions = std::vector<int64_t>(length),
                        .runs = {{table.data(), 0, length}},
                        .expand = {vanilla},
                        .kept = {nullptr}};
    std::iota(step.positions.begin(), step.positions.end(), 0);
    const at::Tensor x = at::randn({length, width_});
    at::Tensor y = at::empty_like(x);
    double least = std::numeric_limits<double>::infinity();
    const auto end = Clock::now() + std::chrono::milliseconds(150);
    do {
      const auto start = Clock::now();
      attention_->Attend(x.data_ptr<float>(), step, cache.layer(0), context_, y.data_ptr<float>());
      least = std::min(least, std::chrono::duration<double>(Clock::now() - start).count());
    } while (Clock::now() < end);
    return least;
  }

 private:
  int64_t width_;      // D
  int64_t row_width_;  // r + d_R
  kernels::KernelContext& context_;
  std::unique_ptr<const cpu::AttentionLayer> attention_;
};

// The length from which expanded attention stays faster, interpolated; 0 if it does not.
double MeasuredCrossover(const Prompt& prompt) {
  double after_length = 0, after_gain = 0;
  for (const int64_t length : {1536, 1024, 768, 512, 384, 256, 192, 128, 96, 64, 32, 16}) {
    const double reduced = prompt.Seconds(length, false);
    const double gain = (reduced - prompt.Seconds(length, true)) / reduced;
    const auto here = static_cast<double>(length);
    if (gain <= 0) {
      if (after_length == 0) return 0;
      return here + (after_length - here) * gain / (gain - after_gain);
    }
    after_length = here;
    after_gain = gain;
  }
  return after_length;
}

void Run(const LatentShape& s, int64_t width, kernels::KernelContext& context) {
  const Prompt prompt(s, width, context);
  const int64_t stored = cpu::ExpansionCrossover({s}, cpu::ExpansionCost());
  const double measured = MeasuredCrossover(prompt);  // 0, and cost 0: expanded never stays faster
  // The cost that would predict the measured crossover.
  const double implied = measured == 0 ? 0
                                       : (measured + 1) / 2 *
                                             static_cast<double>(2 * s.rank - s.d_qk - s.d_v) /
                                             static_cast<double>(s.d_qk + s.d_rope + s.d_v);
  std::printf("  H %-3ld d %-3ld d_R %-2ld r %-3ld %9ld %10.0f %10.0f %10.2f %10.2f\n",
              static_cast<long>(s.heads), static_cast<long>(s.d_qk), static_cast<long>(s.d_rope),
              static_cast<long>(s.rank), static_cast<long>(stored), measured, implied,
              prompt.Seconds(stored, true) / prompt.Seconds(stored, false),
              prompt.Seconds(2048, true) / prompt.Seconds(2048, false));
}

}  // namespace
}  // namespace triptych

int main() {
  using triptych::LatentShape;
  triptych::kernels::KernelContext context(static_cast<int>(std::thread::hardware_concurrency()));
  for (const int64_t set : triptych::InstructionSets()) {
    triptych::UseInstructionSet(set);
    std::printf("%s, stored cost %.0f\n  %-24s %9s %10s %10s %10s %10s\n", hwy::TargetName(set),
                triptych::cpu::ExpansionCost(), "crossover; vanilla / reduced", "stored",
                "measured", "its cost", "there", "at 2048");
    triptych::Run({.heads = 8, .d_qk = 32, .d_v = 32, .rank = 64}, 256, context);
    triptych::Run({.heads = 12, .d_qk = 64, .d_v = 64, .rank = 128, .d_rope = 32}, 768, context);
    triptych::Run({.heads = 16, .d_qk = 128, .d_v = 128, .rank = 512, .d_rope = 64}, 2048, context);
    triptych::UseInstructionSet(0);
  }
  return 0;
}
