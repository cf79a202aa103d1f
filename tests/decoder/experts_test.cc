// Choice of experts: ties and groups, where the order of equal scores shows.
#include "engine/decoder/experts.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/support/tensors.h"

namespace triptych::experts_test {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::Pointwise;

struct Chosen {
  std::vector<int64_t> experts;
  std::vector<double> weights;
};

// The choice of a token whose router gives these logits. `bias`: empty for none
Chosen Choose(const ExpertsConfig& config, const std::vector<double>& logits,
              const std::vector<double>& bias = {}) {
  const auto count = static_cast<int64_t>(logits.size());
  ExpertsWeights weights;
  weights.router = at::tensor(at::ArrayRef<double>(logits), at::kDouble).view({count, 1});
  if (!bias.empty()) {
    weights.correction_bias = at::tensor(at::ArrayRef<double>(bias), at::kDouble);
  }
  const ExpertChoice choice = ChooseExperts(config, weights, at::ones({1, 1}, at::kDouble));
  const at::Tensor experts = choice.experts.contiguous(), shares = choice.weights.contiguous();
  return {{experts.data_ptr<int64_t>(), experts.data_ptr<int64_t>() + experts.numel()},
          {shares.data_ptr<double>(), shares.data_ptr<double>() + shares.numel()}};
}

TEST(ExpertsTest, OfEqualScoresTheLowerIndexIsChosen) {
  ExpertsConfig config{.n_routed_experts = 6, .num_experts_per_tok = 3, .sparse_layers = {}};
  EXPECT_THAT(Choose(config, {0, 0, 0, 0, 0, 0}).experts, ElementsAre(0, 1, 2));
  EXPECT_THAT(Choose(config, {1, 2, 1, 2, 1, 2}).experts, ElementsAre(1, 3, 5));
  EXPECT_THAT(Choose(config, {1, 1, 2, 1, 1, 1}).experts, ElementsAre(2, 0, 1));
  config.scoring_func = ScoringFunc::kSigmoid;
  config.topk_method = TopkMethod::kNoauxTc;
  config.n_group = 3;
  config.topk_group = 2;
  EXPECT_THAT(Choose(config, {0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0}).experts, ElementsAre(0, 1, 2));
  EXPECT_THAT(Choose(config, {0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 1, 0}).experts, ElementsAre(4, 0, 1));
}

TEST(ExpertsTest, GroupsAreRankedByTheirBestOrTheirTwoBest) {
  ExpertsConfig config{.n_routed_experts = 6,
                       .num_experts_per_tok = 2,
                       .topk_method = TopkMethod::kGroupLimitedGreedy,
                       .n_group = 2,
                       .topk_group = 1,
                       .sparse_layers = {}};
  const std::vector<double> logits = {3, 0, 0, 2, 2, 2};
  EXPECT_THAT(Choose(config, logits).experts, ElementsAre(0, 1));
  config.topk_method = TopkMethod::kNoauxTc;
  config.scoring_func = ScoringFunc::kSigmoid;
  EXPECT_THAT(Choose(config, logits, std::vector<double>(6)).experts, ElementsAre(3, 4));
}

// A bias moves the choice, not the weights. Experts of other groups are not chosen even if all
// biased scores of the chosen group are below 0.
TEST(ExpertsTest, ABiasMovesTheChoiceAlone) {
  const ExpertsConfig config{.n_routed_experts = 4,
                             .num_experts_per_tok = 2,
                             .scoring_func = ScoringFunc::kSigmoid,
                             .topk_method = TopkMethod::kNoauxTc,
                             .n_group = 2,
                             .topk_group = 1,
                             .norm_topk_prob = true,
                             .routed_scaling_factor = 4,
                             .sparse_layers = {}};
  const Chosen chosen = Choose(config, {0, 0, 0, 0}, {-2, -2, -1, -3});
  EXPECT_THAT(chosen.experts, ElementsAre(0, 1));
  EXPECT_THAT(chosen.weights, Pointwise(DoubleNear(1e-15), std::vector<double>{2, 2}));
}

}  // namespace
}  // namespace triptych::experts_test
