#include "engine/kernels/router.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <vector>

namespace triptych::kernels::router_test {
namespace {

using Choice = std::map<int32_t, double>;  // weights by expert

// The choice of one row by its definition, in float64.
Choice Definition(const Router& router, const float* logits) {
  const auto count = static_cast<size_t>(router.experts);
  std::vector<double> scores(logits, logits + count);
  if (router.sigmoid) {
    for (double& score : scores) score = 1 / (1 + std::exp(-score));
  } else {
    for (double& score : scores) score = std::exp(score);
    const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
    for (double& score : scores) score /= sum;
  }
  std::vector<double> choices = scores;
  for (size_t i = 0; i < router.bias.size(); ++i) choices[i] += router.bias[i];
  // The indices of the largest values, the lower index first among equal ones.
  const auto largest = [](const std::vector<double>& values, int64_t most) {
    std::vector<int64_t> indices(values.size());
    std::iota(indices.begin(), indices.end(), 0);
    std::stable_sort(indices.begin(), indices.end(),
                     [&](int64_t a, int64_t b) { return values[a] > values[b]; });
    indices.resize(most);
    return indices;
  };
  const int64_t size = router.experts / router.groups;
  std::vector<double> groups(router.groups);
  for (int64_t group = 0; group < router.groups; ++group) {
    std::vector<double> of_group(choices.begin() + group * size,
                                 choices.begin() + (group + 1) * size);
    std::sort(of_group.rbegin(), of_group.rend());
    of_group.resize(std::min(size, router.best_of_group));
    groups[group] = std::accumulate(of_group.begin(), of_group.end(), 0.0);
  }
  const std::vector<int64_t> chosen_groups = largest(groups, router.chosen_groups);
  for (int64_t expert = 0; expert < router.experts; ++expert) {
    if (std::count(chosen_groups.begin(), chosen_groups.end(), expert / size) == 0) {
      choices[expert] = -std::numeric_limits<double>::infinity();
    }
  }
  Choice chosen;
  double sum = 0;
  for (const int64_t expert : largest(choices, router.choices)) {
    chosen[static_cast<int32_t>(expert)] = scores[expert];
    sum += scores[expert];
  }
  for (auto& [expert, weight] : chosen) {
    weight *= router.scale / (router.normalize ? sum : 1);
  }
  return chosen;
}

Choice Chosen(const Router& router, const float* logits, KernelContext& context) {
  std::vector<int32_t> experts(router.choices, -1);
  std::vector<float> weights(router.choices, -1);
  ChooseExperts(router, logits, 1, experts.data(), weights.data(), context);
  Choice chosen;
  for (int64_t i = 0; i < router.choices; ++i) chosen[experts[i]] = weights[i];
  EXPECT_TRUE(std::is_sorted(experts.begin(), experts.end()));
  EXPECT_EQ(std::ssize(chosen), router.choices) << "an expert was chosen twice";
  return chosen;
}

std::vector<float> Normal(int64_t count, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(count);
  for (float& number : numbers) number = normal(generator);
  return numbers;
}

std::vector<Router> Routers() {
  const std::vector<float> bias = Normal(24, 7);
  const std::vector<float> low(24, -3.0f);  // all scores plus bias are negative
  return {
      {.experts = 1, .choices = 1},
      {.experts = 5, .choices = 5, .normalize = true},
      {.experts = 64, .choices = 6, .scale = 1.5f},
      {.experts = 24, .choices = 4, .groups = 6, .chosen_groups = 2},
      {.experts = 24, .choices = 8, .groups = 3, .chosen_groups = 1, .normalize = true},
      {.experts = 24, .choices = 4, .sigmoid = true, .bias = bias, .best_of_group = 2},
      {.experts = 24,
       .choices = 5,
       .sigmoid = true,
       .bias = bias,
       .groups = 4,
       .chosen_groups = 2,
       .best_of_group = 2,
       .normalize = true,
       .least_sum = 1e-20f,
       .scale = 2.5f},
      {.experts = 24,
       .choices = 3,
       .sigmoid = true,
       .bias = low,
       .groups = 24,
       .chosen_groups = 3,
       .best_of_group = 2},
  };
}

TEST(Router, ChoosesByTheDefinition) {
  KernelContext context(3);
  for (const Router& router : Routers()) {
    constexpr int64_t kRows = 200;
    const std::vector<float> logits = Normal(kRows * router.experts, 3);
    std::vector<int32_t> experts(kRows * router.choices);
    std::vector<float> weights(kRows * router.choices);
    ChooseExperts(router, logits.data(), kRows, experts.data(), weights.data(), context);
    for (int64_t row = 0; row < kRows; ++row) {
      const Choice expected = Definition(router, &logits[row * router.experts]);
      for (int64_t i = 0; i < router.choices; ++i) {
        const auto found = expected.find(experts[row * router.choices + i]);
        ASSERT_NE(found, expected.end()) << "row " << row << " of " << router.experts;
        ASSERT_NEAR(weights[row * router.choices + i], found->second, 1e-5 * found->second);
      }
      EXPECT_EQ(Chosen(router, &logits[row * router.experts], context).size(), expected.size());
    }
  }
}

TEST(Router, TheLowerIndexWinsATie) {
  KernelContext context(1);
  const std::vector<float> equal(24, 0.5f);
  for (const Router& router : Routers()) {
    if (router.experts != 24 || !router.bias.empty()) continue;
    int32_t next = 0;
    for (const auto& [expert, weight] : Chosen(router, equal.data(), context)) {
      EXPECT_EQ(expert, next++);
    }
  }
}

TEST(Router, ARowIsTheSameInEveryBatch) {
  KernelContext one(1), many(4);
  const Router router = Routers()[6];
  constexpr int64_t kRows = 400;
  const std::vector<float> logits = Normal(kRows * router.experts, 5);
  std::vector<int32_t> experts(kRows * router.choices);
  std::vector<float> weights(kRows * router.choices);
  ChooseExperts(router, logits.data(), kRows, experts.data(), weights.data(), many);
  for (int64_t row = 0; row < kRows; ++row) {
    for (const auto& [expert, weight] : Chosen(router, &logits[row * router.experts], one)) {
      const auto begin = experts.begin() + row * router.choices;
      const auto found = std::find(begin, begin + router.choices, expert);
      ASSERT_NE(found, begin + router.choices);
      EXPECT_EQ(weights[found - experts.begin()], static_cast<float>(weight));
    }
  }
}

TEST(Router, LogitsThatAreNotFiniteGiveValidExperts) {
  KernelContext context(1);
  const float infinity = std::numeric_limits<float>::infinity();
  for (const Router& router : Routers()) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), infinity, -infinity}) {
      for (const bool all : {false, true}) {
        std::vector<float> logits = Normal(router.experts, 9);
        std::fill(logits.begin(), all ? logits.end() : logits.begin() + 1, bad);
        for (const auto& [expert, weight] : Chosen(router, logits.data(), context)) {
          EXPECT_GE(expert, 0);
          EXPECT_LT(expert, router.experts);
        }
      }
    }
  }
}

}  // namespace
}  // namespace triptych::kernels::router_test
