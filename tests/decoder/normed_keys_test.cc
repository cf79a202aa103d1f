#include "engine/decoder/normed_keys.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "engine/attention/algebra.h"
#include "engine/base/error.h"
#include "engine/decoder/conversion_rules.h"
#include "engine/decoder/convert_weights.h"
#include "engine/decoder/decoder.h"
#include "engine/decoder/tensor_specs.h"
#include "engine/decoder/weights.h"
#include "tests/support/oracle.h"
#include "tests/support/random_model.h"
#include "tests/support/refusal.h"
#include "tests/support/tensors.h"

namespace triptych::normed_keys_test {
namespace {

using testing::HasSubstr;

// Conversions that lose nothing differ by rounding only: float64 and logits of order 1.
constexpr double kRounding = 1e-10;
// A mistake is detected if its error is far above this.
constexpr double kWrong = 1e-3;

// Six query heads, whose keys are normed. The key heads have very unequal sizes, and the weights of
// the norms differ in the elements of a pair.
Checkpoint Normed(int64_t groups, PositionEmbedding positions) {
  ModelConfig config = SmallModel(groups == 6 ? AttentionKind::kMha : AttentionKind::kGqa);
  config.num_attention_heads = 6;
  config.num_key_value_heads = groups;
  config.head_dim = 8;
  config.position_embedding = positions;
  config.rope_theta = 100;
  config.qk_norm = true;
  config.norm_eps = 0.01;
  Checkpoint from{.config = config, .weights = RandomWeights(config, 3)};
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    from.weights.at(AttentionPrefix(layer) + "k_proj.weight").narrow(0, 0, 8).mul_(20);
  }
  return from;
}

std::vector<int64_t> Ids(const ModelConfig& config) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 12; ++i) ids.push_back((i * 37 + 11) % config.vocab_size);
  return ids;
}

// [1, 12, vocab] float64
at::Tensor Logits(const Checkpoint& checkpoint) {
  return Decoder(checkpoint.config, checkpoint.weights, ComputeType::kFloat64)
      .Forward(ToTensor(Ids(checkpoint.config)).unsqueeze(0));
}

Checkpoint ToMla(const Checkpoint& from, int64_t rank = 0, int64_t rope_head_dim = 0) {
  return Convert(from,
                 {.attention = AttentionKind::kMla, .rank = rank, .rope_head_dim = rope_head_dim},
                 "from");
}

constexpr PositionEmbedding kPositions[] = {PositionEmbedding::kLearned, PositionEmbedding::kNone,
                                            PositionEmbedding::kRope};

// Both the source and its latents are what plain loops compute of their own tensors.
TEST(NormedKeys, BecomeLatentsWithoutLoss) {
  for (const int64_t groups : {1, 2, 3, 6}) {
    for (const PositionEmbedding positions : kPositions) {
      SCOPED_TRACE(std::to_string(groups) + " " + std::string(Name(positions)));
      const Checkpoint from = Normed(groups, positions);
      const at::Tensor expected =
          ToTensor(oracle::Logits(from.config, ToArrays(from.weights), Ids(from.config)));
      EXPECT_LT(LargestDifference(Logits(from)[0], expected), kRounding);
      const Checkpoint mla = ToMla(from);
      EXPECT_EQ(mla.config.attention, AttentionKind::kMla);
      EXPECT_EQ(mla.config.NormedKeys(), groups);
      EXPECT_EQ(CacheRowElements(mla.config, 0),
                mla.config.kv_lora_rank[0] + mla.config.qk_rope_head_dim + groups);
      EXPECT_LT(LargestDifference(Logits(mla)[0], expected), kRounding);
      ASSERT_EQ(mla.weights.size(), ExpectedTensors(mla.config).size());
      for (const TensorSpec& spec : ExpectedTensors(mla.config)) {
        EXPECT_EQ(mla.weights.at(spec.name).sizes(), spec.shape) << spec.name;
      }
    }
  }
}

TEST(NormedKeys, AStretchedRotationStaysWhatItIs) {
  Checkpoint from = Normed(2, PositionEmbedding::kRope);
  from.config.rope_factors = {1, 1.5, 3, 8};
  from.config.rope_attention_factor = 1.25;
  from.config.attention_score_factor = 0.75;
  EXPECT_LT(LargestDifference(Logits(ToMla(from)), Logits(from)), kRounding);
  // Pairs that hardly turn lose nothing if they are no longer rotated, and keep their magnitude.
  from.config.rope_factors = {1, 1, 1e12, 1e12};
  EXPECT_LT(LargestDifference(Logits(ToMla(from, 0, 8)), Logits(from)), kRounding);
}

TEST(NormedKeys, LosesMoreTheLowerTheRank) {
  const Checkpoint from = Normed(2, PositionEmbedding::kNone);
  double previous = 0;
  for (const int64_t rank : {22, 14, 6, 2}) {
    const double error = RelativeError(Logits(ToMla(from, rank)), Logits(from));
    EXPECT_GT(error, previous) << rank;
    previous = error;
  }
}

// Inverse norms are those of the source's keys at every rank.
TEST(NormedKeys, NormsAreExactAtEveryRank) {
  const Checkpoint from = Normed(2, PositionEmbedding::kRope);
  const Checkpoint mla = ToMla(from, 3, 4);
  const std::string name = AttentionPrefix(1) + "k_proj.weight";
  EXPECT_TRUE(at::equal(mla.weights.at(name), from.weights.at(name)));
}

// A head that is large before its norm gets no more of the rank than the others, or than the
// values.
TEST(NormedKeys, HeadsShareTheRankWhateverTheirSizes) {
  Checkpoint from = Normed(2, PositionEmbedding::kNone);
  const Checkpoint large = ToMla(from, 10);
  from.weights.at(AttentionPrefix(0) + "k_proj.weight").narrow(0, 0, 8).div_(20);
  const Checkpoint small = ToMla(from, 10);
  EXPECT_LT(LargestDifference(FullKeyValue(large, 0), FullKeyValue(small, 0)), kRounding);
}

// Controls: each part is needed.
TEST(NormedKeysControl, WrongPartsAreDetected) {
  const Checkpoint from = Normed(2, PositionEmbedding::kRope);
  const Checkpoint mla = ToMla(from);
  const at::Tensor expected = Logits(from);
  const auto expect_wrong = [&](const char* mistake, const char* tensor, const auto& change) {
    Checkpoint wrong = mla;
    for (int64_t layer = 0; layer < 2; ++layer) {
      at::Tensor& weight = wrong.weights.at(AttentionPrefix(layer) + tensor);
      weight = change(weight);
    }
    EXPECT_GT(LargestDifference(Logits(wrong), expected), kWrong) << mistake;
  };
  expect_wrong("the norm of the other head", "k_proj.weight", [](const at::Tensor& keys) {
    return keys.view({2, 8, -1}).flip(0).flatten(0, 1);
  });
  expect_wrong("keys with the weight of their norm", "k_proj.weight", [&](const at::Tensor& keys) {
    return keys * from.weights.at(AttentionPrefix(0) + "k_norm.weight").repeat({2}).unsqueeze(1);
  });
  // Only the pairs that are kept are left here: the rest of the keys is nothing.
  Checkpoint without = mla;
  without.config.qk_norm = false;
  without.config.num_key_value_heads = 6;
  EXPECT_GT(LargestDifference(Logits(without), expected), kWrong);
  const Checkpoint learned = Normed(2, PositionEmbedding::kLearned);
  Checkpoint twice = ToMla(learned);
  for (int64_t layer = 0; layer < 2; ++layer) {
    at::Tensor& weight = twice.weights.at(AttentionPrefix(layer) + "q_norm.weight");
    weight = weight.square();
  }
  EXPECT_GT(LargestDifference(Logits(twice), Logits(learned)), kWrong);
}

TEST(NormedKeys, BiasesOfKeysAreRefused) {
  Checkpoint from = Normed(2, PositionEmbedding::kRope);
  from.config.attention_bias = true;
  EXPECT_THAT(RefusalOf<LoadError>([&] { ToMla(from); }),
              HasSubstr("from: qk_norm and attention_bias are true"));
}

}  // namespace
}  // namespace triptych::normed_keys_test
