#include "engine/tools/latent_cut.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "tests/support/random_model.h"
#include "tests/support/tensors.h"

namespace triptych::tools::latent_cut_test {
namespace {

// At G * d, 4096, a layer of Llama 2 of 7 billion parameters would have 554 million in its queries
// and 185 million others.
TEST(DecoupledWidthsTest, LargeModelsAreNotMadeManyTimesLarger) {
  ModelConfig config = SmallModel(AttentionKind::kMha);
  config.position_embedding = PositionEmbedding::kRope;
  config.mlp = MlpKind::kSwiglu;
  config.hidden_size = 4096;
  config.intermediate_size = 11008;
  config.num_attention_heads = config.num_key_value_heads = 32;
  config.head_dim = 128;
  EXPECT_EQ(DecoupledWidths(config), (std::vector<int64_t>{32, 64, 128, 256, 512, 1024}));
  // Widths up to 2 * d are always tried.
  config.intermediate_size = 1;
  EXPECT_EQ(DecoupledWidths(config), (std::vector<int64_t>{32, 64, 128, 256}));
  // Models with few heads keep all widths.
  config.intermediate_size = 11008;
  config.num_attention_heads = config.num_key_value_heads = 4;
  EXPECT_EQ(DecoupledWidths(config), (std::vector<int64_t>{32, 64, 128, 256, 512}));
}

std::vector<KeyValueSvd> RandomSvds(const std::vector<HeadShape>& shapes) {
  Normal normal(5);
  std::vector<KeyValueSvd> svds;
  for (const HeadShape& s : shapes) {
    const at::Tensor decay = at::pow(0.7, at::arange(s.width, at::kDouble));
    svds.emplace_back(normal.Weight(s.groups * s.d, s.width) * decay,
                      normal.Weight(s.groups * s.d, s.width) * decay);
  }
  return svds;
}

double Lost(const std::vector<KeyValueSvd>& svds, const std::vector<double>& weights,
            const std::vector<int64_t>& ranks) {
  double lost = 0;
  for (size_t i = 0; i < svds.size(); ++i) {
    lost += weights[i] * (1 - svds[i].energy()[ranks[i] - 1].item<double>());
  }
  return lost;
}

// The least loss of any ranks with a sum of `left`, from layer ranks.size() on.
double LeastLost(const std::vector<KeyValueSvd>& svds, const std::vector<double>& weights,
                 int64_t left, std::vector<int64_t> ranks = {}) {
  if (ranks.size() == svds.size()) {
    return left == 0 ? Lost(svds, weights, ranks) : std::numeric_limits<double>::infinity();
  }
  double least = std::numeric_limits<double>::infinity();
  const int64_t most = std::min(left, svds[ranks.size()].full_rank());
  ranks.push_back(0);
  for (ranks.back() = 1; ranks.back() <= most; ++ranks.back()) {
    least = std::min(least, LeastLost(svds, weights, left - ranks.back(), ranks));
  }
  return least;
}

TEST(AllocateRanksTest, NoOtherRanksLoseLess) {
  const std::vector<KeyValueSvd> svds = RandomSvds({{5, 2, 2, 2}, {4, 3, 1, 1}, {7, 2, 1, 3}});
  for (const std::vector<double>& weights :
       {std::vector<double>{1, 1, 1}, {0.01, 1, 0.3}, {3, 0.5, 1}}) {
    for (int64_t total = 3; total <= 5 + 2 + 6; ++total) {
      const std::vector<int64_t> ranks = AllocateRanks(svds, weights, total);
      ASSERT_EQ(std::accumulate(ranks.begin(), ranks.end(), int64_t{0}), total);
      EXPECT_NEAR(Lost(svds, weights, ranks), LeastLost(svds, weights, total), 1e-12);
    }
  }
}

TEST(AllocateRanksTest, EveryLayerHasARankAndNoneMoreThanItsFullOne) {
  const std::vector<KeyValueSvd> svds = RandomSvds({{5, 2, 2, 2}, {4, 3, 1, 1}});
  EXPECT_THAT(AllocateRanks(svds, {1, 1e-9}, 5), testing::ElementsAre(4, 1));
  EXPECT_THAT(AllocateRanks(svds, {1, 1e-9}, 6), testing::ElementsAre(5, 1));
  EXPECT_THAT(AllocateRanks(svds, {1, 1e-9}, 7), testing::ElementsAre(5, 2));
  EXPECT_THAT(AllocateRanks(svds, {1, 1}, 1000), testing::ElementsAre(5, 2));
  EXPECT_THAT(AllocateRanks(svds, {1, 1}, 2), testing::ElementsAre(1, 1));
}

}  // namespace
}  // namespace triptych::tools::latent_cut_test
