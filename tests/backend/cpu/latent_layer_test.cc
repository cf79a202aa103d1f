#include "engine/backend/cpu/latent_layer.h"

#include <ATen/ATen.h>
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
#include "engine/tools/quantize.h"
#include "tests/support/tensors.h"

namespace triptych::cpu::latent_layer_test {
namespace {

// float32 against float64, scaled weights.
constexpr double kSingle = 1e-5;

class LatentLayerTest : public testing::TestWithParam<std::pair<const std::string, WeightFormat>> {
 protected:
  static constexpr int64_t kTokens = 21, kWidth = 16, kHeads = 4, kHead = 4, kRope = 4;

  // A layer that is served premultiplied at rank 3, and factored at rank 40.
  struct Layer {
    explicit Layer(int64_t rank, int64_t normed_keys = 0)
        : shape{.heads = kHeads,
                .d_qk = kHead,
                .d_v = kHead,
                .rank = rank,
                .d_rope = kRope,
                .norm_eps = 0.01,
                .normed_keys = normed_keys} {
      Normal normal(24);
      weights.q = {normal.Weight(kHeads * (kHead + kRope), kWidth),
                   normal.Tensor({kHeads * (kHead + kRope)}, 0.5)};
      weights.kv_a = {normal.Weight(rank + kRope, kWidth), {}};
      weights.latent_norm = normal.Tensor({rank}, 0.3) + 1;
      weights.kv_b = normal.Weight(2 * kHeads * kHead, rank);
      weights.o = {normal.Weight(kWidth, kHeads * kHead), normal.Tensor({kWidth}, 0.5)};
      x = normal.Tensor({1, kTokens, kWidth});
      if (normed_keys == 0) return;
      weights.k = {normal.Weight(normed_keys * kHead, kWidth), {}};
      weights.head_norm = normal.Tensor({kHeads * kHead}, 0.3) + 1;
    }

    LatentShape shape;
    LatentWeights weights;
    at::Tensor x;  // [1, tokens, width]
    Rotary rotary{kTokens, kRope, 100};
  };

  // A layer's output with these weights, rounded to a format: [tokens, width].
  static at::Tensor Serve(const Layer& layer, ReducedWeights weights, WeightFormat format,
                          bool expand) {
    for (at::Tensor* tensor :
         {&weights.q.weight, &weights.q.bias, &weights.kv_a.weight, &weights.latent_norm,
          &weights.uk, &weights.uv, &weights.o.weight, &weights.o.bias, &weights.k.weight}) {
      if (tensor->defined()) *tensor = tensor->to(at::kFloat);
    }
    const at::Tensor table = layer.rotary.Table().flatten().contiguous();
    const auto rotation = std::make_shared<const std::vector<float>>(
        table.data_ptr<float>(), table.data_ptr<float>() + table.numel());
    kernels::KernelContext context(2);
    const auto packed =
        PackLatent(layer.shape, weights, format, rotation, /*expand=*/true, context.pool);
    const int64_t row_width = layer.shape.rank + kRope;
    const int64_t norms = layer.shape.normed_keys;
    const CacheMemory cache(4, {{.elements = nullptr,
                                 .format = CacheFormat::kFloat32,
                                 .row_width = row_width,
                                 .block_positions = 8,
                                 .inverse_norms = norms}});
    std::fill_n(static_cast<float*>(cache.layer(0).elements), 4 * 8 * (row_width + norms),
                std::nanf(""));
    const std::vector<int32_t> blocks = {2, 0, 3};
    LayerStep step{.positions = std::vector<int64_t>(kTokens),
                   .runs = {{blocks.data(), 0, kTokens}},
                   .expand = {expand},
                   .kept = {nullptr}};
    std::iota(step.positions.begin(), step.positions.end(), 0);
    const at::Tensor narrow = layer.x[0].to(at::kFloat).contiguous();
    at::Tensor y = at::full({kTokens, kWidth}, std::nan(""), at::kFloat);
    packed->Attend(narrow.data_ptr<float>(), step, cache.layer(0), context, y.data_ptr<float>());
    return y;
  }

  // Tolerance of a format's rounded weights, compared with the definition.
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

// Both forms can serve, and factored weights can also expand: compares their attention over the
// cache with the vanilla definition.
TEST_P(LatentLayerTest, IsTheDefinitionForEitherFormAndForExpandedRuns) {
  for (const int64_t rank : {3, 40}) {
    const Layer layer(rank);
    const at::Tensor expected =
        LatentAttention(layer.shape, layer.weights, layer.rotary).Dense(layer.x, layer.x, true)[0];
    const ReducedWeights reduced =
        Reduce(layer.shape, layer.weights, SmallerForm(layer.shape, kWidth));
    EXPECT_EQ(reduced.form, rank == 3 ? ReducedForm::kPremultiplied : ReducedForm::kFactored);
    for (const bool expand : {false, true}) {
      EXPECT_LE(WorstRowError(Serve(layer, reduced, GetParam().second, expand), expected),
                Tolerance())
          << "rank " << rank << ", expand " << expand;
    }
  }
}

// The same of normed keys, which are always factored. Integers round W_K of the norms, too.
TEST_P(LatentLayerTest, NormedKeysAreTheDefinitionReducedAndExpanded) {
  for (const int64_t rank : {3, 40}) {
    for (const int64_t normed : {1, 2, 4}) {
      const Layer layer(rank, normed);
      const at::Tensor expected = LatentAttention(layer.shape, layer.weights, layer.rotary)
                                      .Dense(layer.x, layer.x, true)[0];
      const ReducedWeights reduced =
          Reduce(layer.shape, layer.weights, SmallerForm(layer.shape, kWidth));
      EXPECT_EQ(reduced.form, ReducedForm::kFactored);
      for (const bool expand : {false, true}) {
        EXPECT_LE(WorstRowError(Serve(layer, reduced, GetParam().second, expand), expected),
                  Tolerance() * (IsInteger(GetParam().second) ? 1.5 : 1))
            << "rank " << rank << ", normed keys " << normed << ", expand " << expand;
      }
    }
  }
}

// Matrices are rounded after absorption, each along its inputs.
TEST_P(LatentLayerTest, IntegersServeTheirRoundedReducedMatrices) {
  const WeightFormat format = GetParam().second;
  if (!IsInteger(format)) return;
  for (const int64_t rank : {3, 40}) {
    const Layer layer(rank);
    const ReducedWeights reduced =
        Reduce(layer.shape, layer.weights, SmallerForm(layer.shape, kWidth));
    const auto round = [&](const at::Tensor& matrices) {
      return tools::RoundToNearest(matrices.reshape({-1, matrices.size(-1)}), format)
          .view_as(matrices);
    };
    ReducedWeights rounded = reduced;
    for (at::Tensor* matrix : {&rounded.q.weight, &rounded.kv_a.weight, &rounded.o.weight}) {
      *matrix = round(*matrix);
    }
    if (reduced.form == ReducedForm::kFactored) {
      rounded.uk = round(reduced.uk.transpose(1, 2).contiguous()).transpose(1, 2);
      rounded.uv = round(reduced.uv.contiguous());
    }
    const at::Tensor served = Serve(layer, reduced, format, /*expand=*/false);
    const auto error = [&](const ReducedWeights& weights) {
      return RelativeError(served, Serve(layer, weights, WeightFormat::kFloat32, false));
    };
    // Inputs are rounded too, by at most 1/254 of the largest of each group, like 8-bit weights.
    // The unrounded weights are farther away, several times with four bits: a matrix that is
    // rounded in another way would exceed the tolerance.
    EXPECT_LE(error(rounded), 2e-2) << "rank " << rank;
    EXPECT_LT(error(rounded), (format == WeightFormat::kInt4 ? 0.3 : 0.9) * error(reduced))
        << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, LatentLayerTest, testing::ValuesIn(Names<WeightFormat>()),
                         [](const auto& instance) { return instance.param.first; });

}  // namespace
}  // namespace triptych::cpu::latent_layer_test
