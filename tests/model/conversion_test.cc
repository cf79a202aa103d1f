#include "engine/model/conversion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "engine/attention/algebra.h"
#include "engine/model/decoder.h"
#include "tests/support/random_model.h"
#include "tests/support/tensors.h"

namespace triptych {
namespace {

using testing::HasSubstr;

// Conversions that lose nothing differ by rounding only: float64 and logits of order 1.
constexpr double kRounding = 1e-11;

Checkpoint RandomCheckpoint(AttentionKind kind, bool bias = false) {
  Checkpoint checkpoint{.config = SmallModel(kind), .weights = {}};
  checkpoint.config.position_embedding = PositionEmbedding::kLearned;
  checkpoint.config.attention_bias = bias;
  checkpoint.weights = RandomWeights(checkpoint.config, 7);
  return checkpoint;
}

// [1, 12, vocab] float64
at::Tensor Logits(const Checkpoint& checkpoint) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 12; ++i) ids.push_back((i * 37 + 11) % checkpoint.config.vocab_size);
  return Decoder(checkpoint.config, checkpoint.weights, at::kDouble)
      .Forward(ToTensor(ids).unsqueeze(0));
}

TEST(Conversion, GqaToMhaIsExact) {
  for (const bool bias : {false, true}) {
    const Checkpoint gqa = RandomCheckpoint(AttentionKind::kGqa, bias);
    const Checkpoint mha = Convert(gqa, {.attention = AttentionKind::kMha}, "gqa");
    EXPECT_EQ(mha.config.num_key_value_heads, mha.config.num_attention_heads);
    EXPECT_LT(LargestDifference(Logits(mha), Logits(gqa)), kRounding);
  }
}

TEST(Conversion, GqaToMhaAndBackIsTheSameModel) {
  const Checkpoint gqa = RandomCheckpoint(AttentionKind::kGqa);
  const Checkpoint mha = Convert(gqa, {.attention = AttentionKind::kMha}, "gqa");
  const Checkpoint back = Convert(
      mha, {.attention = AttentionKind::kGqa, .groups = gqa.config.num_key_value_heads}, "mha");
  EXPECT_EQ(ToJson(back.config), ToJson(gqa.config));
  for (const auto& [name, tensor] : gqa.weights) {
    EXPECT_LT(LargestDifference(back.weights.at(name), tensor), 1e-14) << name;
  }
}

TEST(Conversion, MhaToGqaPoolsHeadsOfEqualResidue) {
  const Checkpoint mha = RandomCheckpoint(AttentionKind::kMha);
  const int64_t heads = mha.config.num_attention_heads, d = mha.config.head_dim;
  const int64_t groups = heads / 2;
  const Checkpoint gqa = Convert(mha, {.attention = AttentionKind::kGqa, .groups = groups}, "mha");
  const std::string name = "model.layers.0.self_attn.k_proj.weight";
  const at::Tensor& from = mha.weights.at(name);
  const at::Tensor& to = gqa.weights.at(name);
  for (int64_t g = 0; g < groups; ++g) {
    const at::Tensor mean =
        (from.narrow(0, g * d, d) + from.narrow(0, (g + groups) * d, d)) / 2;  // h = g, g + G
    EXPECT_LT(LargestDifference(to.narrow(0, g * d, d), mean), 1e-15) << g;
  }
}

TEST(Conversion, ToMlaAtFullRankIsExact) {
  for (const AttentionKind kind : {AttentionKind::kMha, AttentionKind::kGqa}) {
    for (const bool bias : {false, true}) {
      const Checkpoint from = RandomCheckpoint(kind, bias);
      const Checkpoint mla =
          Convert(from, {.attention = AttentionKind::kMla, .rank = FullRank(from.config)}, "from");
      EXPECT_EQ(CacheRowElements(mla.config, 0), FullRank(from.config));
      EXPECT_LT(LargestDifference(Logits(mla), Logits(from)), kRounding)
          << Name(kind) << (bias ? " with biases" : "");
    }
  }
}

TEST(Conversion, TruncationLosesMoreTheLowerTheRank) {
  const Checkpoint mha = RandomCheckpoint(AttentionKind::kMha);
  const at::Tensor exact = Logits(mha);
  double previous = 0;
  for (int64_t rank = FullRank(mha.config) - 2; rank >= 2; rank /= 2) {
    const double error = RelativeError(
        Logits(Convert(mha, {.attention = AttentionKind::kMla, .rank = rank}, "mha")), exact);
    EXPECT_GT(error, previous) << rank;
    previous = error;
  }
}

TEST(Conversion, RefusesWhatCannotBe) {
  const auto message = [](const Checkpoint& from, const Conversion& target) -> std::string {
    try {
      Convert(from, target, "the-model");
    } catch (const LoadError& e) {
      return e.what();
    }
    return "";
  };
  const Checkpoint mha = RandomCheckpoint(AttentionKind::kMha);
  EXPECT_THAT(message(mha, {.attention = AttentionKind::kGqa, .groups = 3}),
              testing::AllOf(HasSubstr("the-model"), HasSubstr("groups 3")));
  EXPECT_THAT(message(mha, {.attention = AttentionKind::kMla, .rank = -1}), HasSubstr("rank -1"));
  EXPECT_THAT(message(mha, {.attention = AttentionKind::kMla, .rank = FullRank(mha.config) + 1}),
              HasSubstr("allowed: 1 to " + std::to_string(FullRank(mha.config))));
  EXPECT_THAT(message(RandomCheckpoint(AttentionKind::kMla), {.attention = AttentionKind::kMha}),
              HasSubstr("mla"));
  Checkpoint rotary = RandomCheckpoint(AttentionKind::kMha);
  rotary.config.position_embedding = PositionEmbedding::kRope;
  EXPECT_THAT(message(rotary, {.attention = AttentionKind::kMla, .rank = 4}), HasSubstr("rope"));
}

// Definitions, section 3: the singular values of H/G stacked copies are sqrt(H/G) times those of
// one, and the rank does not grow.
TEST(Algebra, RepeatedHeadsKeepTheirRank) {
  Normal normal(3);
  const int64_t groups = 2, d = 3, heads = 8;
  const at::Tensor one = normal.Weight(groups * d, 24);
  const at::Tensor stacked = RepeatHeads(one, heads, d);
  const at::Tensor values = at::linalg_svdvals(stacked);
  const at::Tensor expected = at::linalg_svdvals(one) * std::sqrt(heads / groups);
  EXPECT_LT(LargestDifference(values.narrow(0, 0, groups * d), expected), 1e-13);
  EXPECT_EQ(at::linalg_matrix_rank(stacked).item<int64_t>(), groups * d);
}

}  // namespace
}  // namespace triptych
