#include "engine/decoder/decoupled_keys.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "engine/attention/algebra.h"
#include "engine/base/error.h"
#include "engine/decoder/convert_weights.h"
#include "engine/decoder/decoder.h"
#include "engine/decoder/tensor_specs.h"
#include "engine/decoder/weights.h"
#include "tests/support/random_model.h"
#include "tests/support/refusal.h"
#include "tests/support/tensors.h"

namespace triptych::decoupled_keys_test {
namespace {

using testing::HasSubstr;

// Conversions that lose nothing differ by rounding only: float64 and logits of order 1.
constexpr double kRounding = 1e-10;
// Losing rotation, or a mistake, causes errors far above this.
constexpr double kWrong = 1e-3;

// Modular grouped heads with rotary positions.
Checkpoint Rotary(int64_t groups, bool bias = false) {
  ModelConfig config = SmallModel(AttentionKind::kGqa);
  config.num_attention_heads = 6;
  config.num_key_value_heads = groups;
  config.head_dim = 8;
  config.position_embedding = PositionEmbedding::kRope;
  config.rope_theta = 100;
  config.attention_bias = bias;
  return {.config = config, .weights = RandomWeights(config, 3)};
}

// [1, 12, vocab] float64
at::Tensor Logits(const Checkpoint& checkpoint) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 12; ++i) ids.push_back((i * 37 + 11) % checkpoint.config.vocab_size);
  return Decoder(checkpoint.config, checkpoint.weights, ComputeType::kFloat64)
      .Forward(ToTensor(ids).unsqueeze(0));
}

Checkpoint ToMla(const Checkpoint& from, int64_t rope_head_dim, int64_t fold = 1) {
  return Convert(from,
                 {.attention = AttentionKind::kMla, .rope_head_dim = rope_head_dim, .fold = fold},
                 "from");
}

// Key head g's rows become `factors[g]` times those of head 0.
void MakeKeysAlike(Checkpoint& model, const std::vector<double>& factors) {
  for (int64_t layer = 0; layer < model.config.num_hidden_layers; ++layer) {
    at::Tensor& keys = model.weights.at(AttentionPrefix(layer) + "k_proj.weight");
    const at::Tensor first = keys.narrow(0, 0, model.config.head_dim);
    std::vector<at::Tensor> heads;
    for (const double factor : factors) heads.push_back(first * factor);
    keys = at::cat(heads);
  }
}

// Heads mixed by any orthogonal matrix at each frequency, all of them kept: nothing is lost.
TEST(DecoupledKeys, MixingHeadsAtOneFrequencyChangesNothing) {
  for (const int64_t groups : {1, 2, 3, 6}) {
    for (const bool bias : {false, true}) {
      SCOPED_TRACE(std::to_string(groups) + (bias ? " with biases" : ""));
      const Checkpoint from = Rotary(groups, bias);
      const Checkpoint mla = ToMla(from, groups * from.config.head_dim);
      EXPECT_EQ(mla.config.attention, AttentionKind::kMla);
      EXPECT_EQ(mla.config.qk_rope_head_dim, groups * from.config.head_dim);
      EXPECT_LT(LargestDifference(Logits(mla), Logits(from)), kRounding);
    }
  }
}

// The weights have the model's own scale if nothing is left of keys besides them, so that no rank
// is spent on rounding.
TEST(DecoupledKeys, WhereAllAreKeptRanksAreForValues) {
  const Checkpoint from = Rotary(2);
  const int64_t width = from.config.hidden_size;
  const std::vector<at::Tensor> covariances(from.config.num_hidden_layers,
                                            at::eye(width, at::kDouble));
  const DecoupledKeys keys = MixedPairs(from, 1, covariances).Strongest(16);
  const std::vector<KeyValueSvd> svds = DecomposeLayers(from, covariances, keys);
  const std::vector<int64_t> ranks(from.config.num_hidden_layers, 16);  // of the values
  EXPECT_LT(LargestDifference(Logits(ToLatent(from, svds, ranks, keys)), Logits(from)), kRounding);
  for (const KeyValueSvd& svd : svds) EXPECT_NEAR(svd.energy()[15].item<double>(), 1, kRounding);
}

TEST(DecoupledKeys, AStretchedRotationStaysWhatItIs) {
  Checkpoint from = Rotary(2);
  from.config.rope_factors = {1, 1.5, 3, 8};
  from.config.rope_attention_factor = 1.25;
  from.config.attention_score_factor = 0.75;
  EXPECT_LT(LargestDifference(Logits(ToMla(from, 16)), Logits(from)), kRounding);
  // Where all keys are one head's, one pair of each frequency is all there is to keep.
  MakeKeysAlike(from, {0.5, -2});
  EXPECT_LT(LargestDifference(Logits(ToMla(from, 8)), Logits(from)), kRounding);
}

TEST(DecoupledKeys, OneKeyForAllHeadsIsKeptWhole) {
  Checkpoint from = Rotary(3);
  EXPECT_GT(LargestDifference(Logits(ToMla(from, 8)), Logits(from)), kWrong);
  MakeKeysAlike(from, {1, -0.5, 2});
  EXPECT_LT(LargestDifference(Logits(ToMla(from, 8)), Logits(from)), kRounding);
}

TEST(DecoupledKeys, FoldedFrequenciesAreMixedAsOne) {
  Checkpoint from = Rotary(2);
  MakeKeysAlike(from, {1, 3});
  // Pairs 2i and 2i+1 turn alike, and hold the same up to a factor.
  const double ratio = std::pow(from.config.rope_theta, -1.0 / 4);
  from.config.rope_factors = {1, ratio, 1, ratio};
  for (int64_t layer = 0; layer < from.config.num_hidden_layers; ++layer) {
    const at::Tensor pairs = from.weights.at(AttentionPrefix(layer) + "k_proj.weight")
                                 .view({2, 4, 2, from.config.hidden_size});
    for (const int64_t pair : {1, 3}) pairs.select(1, pair).copy_(pairs.select(1, pair - 1) * 2);
  }
  EXPECT_LT(LargestDifference(Logits(ToMla(from, 4, /*fold=*/2)), Logits(from)), kRounding);
  EXPECT_GT(LargestDifference(Logits(ToMla(from, 4, /*fold=*/1)), Logits(from)), kWrong);
}

TEST(DecoupledKeys, KeepWhatRotationMattersForMost) {
  // One pair that never turns within the context, and is the strongest by far.
  Checkpoint from = Rotary(1);
  from.config.rope_factors = {1, 1, 1e6, 1};
  for (int64_t layer = 0; layer < from.config.num_hidden_layers; ++layer) {
    at::Tensor& keys = from.weights.at(AttentionPrefix(layer) + "k_proj.weight");
    keys.narrow(0, 4, 2).mul_(3);
  }
  const DecoupledKeys keys = MixedPairs(from, 1, {}).Strongest(6);
  ASSERT_EQ(keys.width(), 6);
  EXPECT_DOUBLE_EQ(keys.frequencies[0], 1);
  EXPECT_DOUBLE_EQ(keys.frequencies[1], std::pow(100.0, -0.25));
  EXPECT_DOUBLE_EQ(keys.frequencies[2], std::pow(100.0, -0.75));
  for (const double kept : keys.energy_kept) EXPECT_NEAR(kept, 1, 1e-6);
  // Its turns are so small that leaving them out hardly shows.
  EXPECT_LT(LargestDifference(Logits(ToMla(from, 6)), Logits(from)), 1e-4);
}

// Pairs are found once: of every width the same, the narrower's among the wider's.
TEST(DecoupledKeys, WiderOnesKeepWhatNarrowerOnesDo) {
  const Checkpoint from = Rotary(3, /*bias=*/true);
  const int64_t all = 3 * from.config.head_dim;
  for (const int64_t fold : {1, 2}) {
    const MixedPairs pairs(from, fold, {});
    DecoupledKeys narrower = pairs.Strongest(2);
    for (int64_t width = 4; width <= all; width += 2) {
      const DecoupledKeys keys = pairs.Strongest(width);
      ASSERT_EQ(keys.width(), width);
      for (size_t layer = 0; layer < keys.mixes.size(); ++layer) {
        // Rows are orthonormal: one that is there again gives a one, and otherwise zeros.
        const at::Tensor common =
            at::einsum("kpg,lpg->kl", {narrower.mixes[layer], keys.mixes[layer]}).abs().sum(1);
        EXPECT_LT(LargestDifference(common, at::ones_like(common)), kRounding);
        EXPECT_GT(keys.energy_kept[layer], narrower.energy_kept[layer]);
      }
      narrower = keys;
    }
    for (const double kept : narrower.energy_kept) EXPECT_NEAR(kept, 1, kRounding);
  }
}

// By what layers read, where that is known: the energy of keys, and not of weights.
TEST(DecoupledKeys, EnergyIsThatOfTheKeys) {
  const Checkpoint from = Rotary(2);
  const int64_t width = from.config.hidden_size;
  // All inputs have one direction: so do all keys of a pair, up to the pair's own plane.
  const at::Tensor direction = Normal(5).Tensor({width, 1});
  const std::vector<at::Tensor> covariances(from.config.num_hidden_layers,
                                            at::mm(direction, direction.t()));
  const DecoupledKeys keys = MixedPairs(from, 1, covariances).Strongest(16);
  for (size_t layer = 0; layer < keys.mixes.size(); ++layer) {
    const at::Tensor rows =
        from.weights.at(AttentionPrefix(static_cast<int64_t>(layer)) + "k_proj.weight");
    const at::Tensor& mix = keys.mixes[layer];
    EXPECT_LT(
        LargestDifference(at::einsum("kpg,lpg->kl", {mix, mix}), at::eye(mix.size(0), at::kDouble)),
        kRounding);
    EXPECT_LT(LargestDifference(AsKeyRows(DecoupledRows(rows, mix), mix), rows), kRounding);
    // The energies of a frequency's pairs fall, and their elements are uncorrelated across pairs.
    const at::Tensor made = at::mm(DecoupledRows(rows, mix), direction).view({-1, 2, 2});
    EXPECT_LT(at::abs((made.select(1, 0) * made.select(1, 1)).sum(-1)).max().item<double>(),
              kRounding * 100);
    EXPECT_TRUE(at::all(made.select(1, 0).square().sum(-1) >=
                        made.select(1, 1).square().sum(-1) - kRounding)
                    .item<bool>());
  }
}

TEST(DecoupledKeys, WidthsThatThereAreNotAreRefused) {
  const Checkpoint from = Rotary(2);
  const auto refusal = [&](const Checkpoint& model, int64_t width, int64_t fold = 1) {
    return RefusalOf<LoadError>([&] { ToMla(model, width, fold); });
  };
  for (const int64_t width : {3, 18, -2}) {
    EXPECT_THAT(refusal(from, width), HasSubstr("allowed: even ones from 2 to 16")) << width;
  }
  EXPECT_THAT(refusal(from, 4, 3), HasSubstr("allowed: what divides 4"));
  Checkpoint plain = from;
  plain.config.position_embedding = PositionEmbedding::kNone;
  EXPECT_THAT(refusal(plain, 4), HasSubstr("need no decoupled ones"));
}

}  // namespace
}  // namespace triptych::decoupled_keys_test
