#include "engine/decoder/experts.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <tuple>

namespace triptych {
namespace {

// The indices of the `count` largest elements of each row, the largest first.
at::Tensor Largest(const at::Tensor& rows, int64_t count) {
  return std::get<1>(at::sort(rows, /*stable=*/true, /*dim=*/-1, /*descending=*/true))
      .narrow(-1, 0, count);
}

// Scores for the choice: minus infinity in groups that a token does not choose from.
//   scores: [tokens, E]
at::Tensor WithinGroups(const ExpertsConfig& config, const at::Tensor& scores) {
  if (config.topk_group == config.n_group) return scores;
  const at::Tensor groups = scores.unflatten(1, {config.n_group, -1});
  const int64_t summed =
      config.topk_method == TopkMethod::kNoauxTc ? std::min<int64_t>(2, groups.size(2)) : 1;
  const at::Tensor best = std::get<0>(groups.topk(summed, -1)).sum(-1);
  const at::Tensor outside =
      at::ones_like(best, at::kBool).scatter(1, Largest(best, config.topk_group), /*value=*/false);
  return groups.masked_fill(outside.unsqueeze(-1), -std::numeric_limits<double>::infinity())
      .flatten(1);
}

}  // namespace

ExpertChoice ChooseExperts(const ExpertsConfig& config, const ExpertsWeights& weights,
                           const at::Tensor& x) {
  const at::ScalarType type = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor logits = at::linear(x.to(type), weights.router.to(type));
  const at::Tensor scores = config.scoring_func == ScoringFunc::kSigmoid
                                ? at::sigmoid(logits)
                                : at::softmax(logits, /*dim=*/-1);
  const at::Tensor biased =
      weights.correction_bias.defined() ? scores + weights.correction_bias.to(type) : scores;
  ExpertChoice choice;
  choice.experts = Largest(WithinGroups(config, biased.detach()), config.num_experts_per_tok);
  choice.weights = scores.gather(1, choice.experts);
  if (config.norm_topk_prob) {
    choice.weights = choice.weights / (choice.weights.sum(-1, /*keepdim=*/true) + kLeastScoreSum);
  }
  choice.weights = choice.weights * config.routed_scaling_factor;
  return choice;
}

}  // namespace triptych
