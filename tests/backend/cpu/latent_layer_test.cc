#include "engine/backend/cpu/latent_layer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "engine/attention/latent_attention.h"
#include "engine/backend/cpu/cache_memory.h"
#include "engine/backend/cpu/pack_weights.h"
#include "tests/support/tensors.h"

namespace triptych {
namespace {

// float32 against float64, scaled weights.
constexpr double kSingle = 1e-5;

// Both forms serve, and factored weights expand as well: what is read out of the cache against the
// vanilla definition. Rounded weights are that much off, and no more.
class LatentLayerTest : public testing::TestWithParam<std::pair<const std::string, WeightFormat>> {
 protected:
  static double Tolerance() {
    switch (GetParam().second) {
      case WeightFormat::kFloat32:
        return kSingle;
      case WeightFormat::kBFloat16:
        return 0.02;
      case WeightFormat::kInt8:
        return 0.05;
      case WeightFormat::kInt4:
        return 0.5;
    }
    return 0;
  }
};

TEST_P(LatentLayerTest, IsVanillaForEitherFormAndForExpandedRuns) {
  constexpr int64_t kTokens = 21, kWidth = 16, kHeads = 4, kHead = 4, kRope = 4;
  for (const int64_t rank : {3, 40}) {
    const LatentShape shape{.heads = kHeads,
                            .d_qk = kHead,
                            .d_v = kHead,
                            .rank = rank,
                            .d_rope = kRope,
                            .norm_eps = 0.01};
    Normal normal(24);
    LatentWeights weights;
    weights.q = {normal.Weight(kHeads * (kHead + kRope), kWidth),
                 normal.Tensor({kHeads * (kHead + kRope)}, 0.5)};
    weights.kv_a = {normal.Weight(rank + kRope, kWidth), {}};
    weights.latent_norm = normal.Tensor({rank}, 0.3) + 1;
    weights.kv_b = normal.Weight(2 * kHeads * kHead, rank);
    weights.o = {normal.Weight(kWidth, kHeads * kHead), normal.Tensor({kWidth}, 0.5)};
    const Rotary rotary(kTokens, kRope, 100);
    const at::Tensor x = normal.Tensor({1, kTokens, kWidth});
    const at::Tensor expected = LatentAttention(shape, weights, rotary).Dense(x, x, true)[0];

    ReducedWeights reduced = Reduce(shape, weights, SmallerForm(shape, kWidth));
    EXPECT_EQ(reduced.form, rank == 3 ? ReducedForm::kPremultiplied : ReducedForm::kFactored);
    for (at::Tensor* tensor :
         {&reduced.q.weight, &reduced.q.bias, &reduced.kv_a.weight, &reduced.latent_norm,
          &reduced.uk, &reduced.uv, &reduced.o.weight, &reduced.o.bias}) {
      if (tensor->defined()) *tensor = tensor->to(at::kFloat);
    }
    const at::Tensor table = rotary.Table().flatten().contiguous();
    const auto rotation = std::make_shared<const std::vector<float>>(
        table.data_ptr<float>(), table.data_ptr<float>() + table.numel());
    ThreadPool pool(2);
    const auto layer =
        PackLatent(shape, reduced, GetParam().second, rotation, /*expand=*/true, pool);
    const at::Tensor narrow = x[0].to(at::kFloat).contiguous();
    for (const bool expand : {false, true}) {
      KernelContext context(2);
      const CacheMemory cache(4, 8, {rank + kRope}, CacheFormat::kFloat32);
      std::fill_n(static_cast<float*>(cache.layer(0).elements), 4 * 8 * (rank + kRope),
                  std::nanf(""));
      const std::vector<int32_t> blocks = {2, 0, 3};
      LayerStep step{.positions = std::vector<int64_t>(kTokens),
                     .runs = {{blocks.data(), 0, kTokens}},
                     .expand = {expand},
                     .kept = {nullptr}};
      std::iota(step.positions.begin(), step.positions.end(), 0);
      at::Tensor y = at::full({kTokens, kWidth}, std::nan(""), at::kFloat);
      layer->Attend(narrow.data_ptr<float>(), step, cache.layer(0), context, y.data_ptr<float>());
      EXPECT_LE(WorstRowError(y, expected), Tolerance())
          << "rank " << rank << ", expand " << expand;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, LatentLayerTest, testing::ValuesIn(Names<WeightFormat>()),
                         [](const auto& instance) { return instance.param.first; });

}  // namespace
}  // namespace triptych
