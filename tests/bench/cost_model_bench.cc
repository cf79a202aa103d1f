// Measures the table of engine/attention/cost_model.cc: what expanding an element of a key or value
// costs, on every instruction set of this machine, and where vanilla attention overtakes reduced.
#include <ATen/ATen.h>
#include <hwy/targets.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "engine/attention/cost_model.h"
#include "engine/attention/latent_attention.h"
#include "engine/kernels/threads.h"
#include "engine/kv_cache/storage.h"

namespace triptych {
namespace {

constexpr int64_t kBlockPositions = 16;

// MLA of random weights.
class Prompt {
 public:
  Prompt(const LatentShape& shape, int64_t width)
      : width_(width), row_width_(shape.rank + shape.d_rope) {
    const auto weight = [](int64_t out, int64_t in) { return at::randn({out, in}) * 0.05; };
    const int64_t heads = shape.heads;
    Rotary rotary;
    if (shape.d_rope > 0) rotary = Rotary(1 << 12, shape.d_rope, 1e4);
    attention_ = std::make_unique<LatentAttention>(
        shape,
        LatentWeights{.q = {weight(heads * (shape.d_qk + shape.d_rope), width), {}},
                      .kv_a = {weight(row_width_, width), {}},
                      .latent_norm = {},
                      .kv_b = weight(heads * (shape.d_qk + shape.d_v), shape.rank),
                      .o = {weight(width, heads * shape.d_v), {}}},
        rotary);
    attention_->PrepareToServe();
  }

  // The least seconds that attending a fresh prompt took.
  double Seconds(int64_t length, bool vanilla) const {
    using Clock = std::chrono::steady_clock;
    const int64_t blocks = (length + kBlockPositions - 1) / kBlockPositions;
    KvCacheStorage cache(blocks, kBlockPositions, {row_width_}, at::kFloat);
    std::vector<int32_t> table(blocks);
    std::iota(table.begin(), table.end(), 0);
    PagedStep step;
    step.positions.resize(length);
    std::iota(step.positions.begin(), step.positions.end(), 0);
    step.sequences = {{table.data(), 0, length}};
    step.vanilla = {vanilla};
    const at::Tensor x = at::randn({length, width_});
    at::Tensor y = at::empty_like(x);
    Workspace workspace;
    double least = std::numeric_limits<double>::infinity();
    const auto end = Clock::now() + std::chrono::milliseconds(150);
    do {
      const auto start = Clock::now();
      attention_->Paged(x.data_ptr<float>(), step, cache.layer(0), workspace, y.data_ptr<float>());
      least = std::min(least, std::chrono::duration<double>(Clock::now() - start).count());
    } while (Clock::now() < end);
    return least;
  }

 private:
  int64_t width_;      // D
  int64_t row_width_;  // r + d_R
  std::unique_ptr<LatentAttention> attention_;
};

// The least squares of reduced - vanilla = pair * (pairs' multiply-adds saved) - element *
// (elements expanded) over lengths; returns element / pair.
double FittedCost(const LatentShape& s, const std::vector<int64_t>& lengths,
                  const std::vector<double>& gains) {
  const auto heads = static_cast<double>(s.heads);
  double pp = 0, pe = 0, ee = 0, pg = 0, eg = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const auto n = static_cast<double>(lengths[i]);
    // Weighted by 1 / n^2, so that short prompts count.
    const double p = heads * static_cast<double>(2 * s.rank - s.d_qk - s.d_v) * (n + 1) / 2 / n;
    const double e = heads * static_cast<double>(s.d_qk + s.d_rope + s.d_v) / n;
    const double g = gains[i] / n / n;
    pp += p * p;
    pe += p * e;
    ee += e * e;
    pg += p * g;
    eg += e * g;
  }
  const double determinant = pp * ee - pe * pe;
  const double pair = (pg * ee - eg * pe) / determinant;
  const double element = -(eg * pp - pg * pe) / determinant;
  return element / pair;
}

void Run(const LatentShape& s, int64_t width) {
  const Prompt prompt(s, width);
  const std::vector<int64_t> lengths = {24, 48, 96, 144, 192, 256, 384, 512};
  std::vector<double> gains;
  int64_t first_gain = 0;  // of vanilla, at one of these lengths
  for (const int64_t length : lengths) {
    gains.push_back(prompt.Seconds(length, false) - prompt.Seconds(length, true));
    if (gains.back() > 0 && first_gain == 0) first_gain = length;
    if (gains.back() <= 0) first_gain = 0;
  }
  std::printf("  H %-3ld d %-3ld d_R %-2ld r %-3ld   %8.1f   %8ld   %8ld\n",
              static_cast<long>(s.heads), static_cast<long>(s.d_qk), static_cast<long>(s.d_rope),
              static_cast<long>(s.rank), FittedCost(s, lengths, gains),
              static_cast<long>(VanillaCrossover({s}, ExpansionCost())),
              static_cast<long>(first_gain));
}

}  // namespace
}  // namespace triptych

int main() {
  using triptych::LatentShape;
  triptych::SetServingThreads(static_cast<int>(std::thread::hardware_concurrency()));
  for (int64_t left = hwy::SupportedTargets(); left != 0; left &= left - 1) {
    const int64_t set = left & -left;
    hwy::SetSupportedTargetsForTest(set);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    std::printf("%s: stored expansion cost %.0f\n  %-27s %8s   %8s   %8s\n", hwy::TargetName(set),
                triptych::ExpansionCost(), "", "fitted", "crossover", "measured");
    triptych::Run({.heads = 8, .d_qk = 32, .d_v = 32, .rank = 64}, 256);
    triptych::Run({.heads = 12, .d_qk = 64, .d_v = 64, .rank = 128, .d_rope = 32}, 768);
    triptych::Run({.heads = 16, .d_qk = 128, .d_v = 128, .rank = 512, .d_rope = 64}, 2048);
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  return 0;
}
