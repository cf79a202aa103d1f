#include "engine/tools/optimizer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace triptych::tools::optimizer_test {
namespace {

Parameter Make(const at::Tensor& value, const at::Tensor& gradient) {
  return {"p", value.clone(), gradient.clone(), at::zeros_like(value), at::zeros_like(value)};
}

TEST(LearningRateTest, RisesInALineAndFallsAlongACosine) {
  const LearningRate rate{.peak = 0.8, .warmup_steps = 4, .steps = 12};
  EXPECT_DOUBLE_EQ(rate.At(0), 0.2);
  EXPECT_DOUBLE_EQ(rate.At(3), 0.8);
  EXPECT_DOUBLE_EQ(rate.At(4), 0.8);
  EXPECT_DOUBLE_EQ(rate.At(6), 0.4 * (1 + std::sqrt(0.5)));  // a quarter of the way down
  EXPECT_DOUBLE_EQ(rate.At(8), 0.4);                         // half of it
  EXPECT_NEAR(rate.At(11), 0.4 * (1 - std::cos(std::acos(-1.0) / 8)), 1e-15);  // 0.03
  EXPECT_LT(rate.At(11), 0.04 * 0.8);
}

TEST(LearningRateTest, BeginsAtThePeakWithoutWarmUp) {
  const LearningRate rate{.peak = 0.5, .warmup_steps = 0, .steps = 2};
  EXPECT_DOUBLE_EQ(rate.At(0), 0.5);
  EXPECT_DOUBLE_EQ(rate.At(1), 0.25);
}

// A run that ends during warm-up does not divide by zero.
TEST(LearningRateTest, MayEndBeforeThePeak) {
  const LearningRate rate{.peak = 1, .warmup_steps = 10, .steps = 5};
  EXPECT_DOUBLE_EQ(rate.At(4), 0.5);
}

TEST(ClipGradientsTest, ScalesAllGradientsTogether) {
  const at::Tensor value = at::zeros({1});
  std::vector<Parameter> parameters = {Make(value, at::full({1}, 3.0)),
                                       Make(value, at::full({1}, -4.0))};
  EXPECT_DOUBLE_EQ(ClipGradients(parameters, 2.5), 5);
  EXPECT_FLOAT_EQ(parameters[0].gradient.item<float>(), 1.5f);
  EXPECT_FLOAT_EQ(parameters[1].gradient.item<float>(), -2);
}

TEST(ClipGradientsTest, DoesNotChangeSmallGradients) {
  std::vector<Parameter> parameters = {Make(at::zeros({2}), at::tensor({3.0f, 4.0f}))};
  EXPECT_DOUBLE_EQ(ClipGradients(parameters, 5), 5);
  EXPECT_TRUE(at::equal(parameters[0].gradient, at::tensor({3.0f, 4.0f})));
}

TEST(ClipGradientsTest, SaysThatANormIsNotFiniteAndScalesNothing) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<Parameter> parameters = {Make(at::zeros({1}), at::full({1}, bad)),
                                         Make(at::zeros({1}), at::full({1}, 2.0f))};
    EXPECT_FALSE(std::isfinite(ClipGradients(parameters, 1)));
    EXPECT_EQ(parameters[1].gradient.item<float>(), 2);
  }
}

// Computed by hand, with beta1 = 0.5, beta2 = 0.75, epsilon = 1, decay 0.2 and a rate of 0.1. A
// matrix of 2 with gradients 4 and then 1:
//   m = 2, v = 4; corrected 4 and 16; 2 * (1 - 0.02) - 0.1 * 4 / (4 + 1) = 1.88
//   m = 1.5, v = 3.25; corrected 1.5 / 0.75 = 2 and 3.25 / 0.4375 = 7.428571;
//   1.88 * 0.98 - 0.1 * 2 / (2.725540 + 1) = 1.788717
// A vector does not decay: 2 - 0.08 = 1.92, and 1.92 - 0.053683 = 1.866317.
TEST(AdamWTest, StepsAreThoseOfThePaper) {
  const AdamW optimizer{.beta1 = 0.5, .beta2 = 0.75, .epsilon = 1, .weight_decay = 0.2};
  std::vector<Parameter> parameters = {Make(at::full({1, 1}, 2.0f), at::full({1, 1}, 4.0f)),
                                       Make(at::full({1}, 2.0f), at::full({1}, 4.0f))};
  optimizer.Step(parameters, 0, 0.1);
  EXPECT_NEAR(parameters[0].value.item<float>(), 1.88, 1e-6);
  EXPECT_NEAR(parameters[1].value.item<float>(), 1.92, 1e-6);
  EXPECT_NEAR(parameters[0].first_moment.item<float>(), 2, 1e-6);
  EXPECT_NEAR(parameters[0].second_moment.item<float>(), 4, 1e-6);
  for (Parameter& p : parameters) p.gradient.fill_(1);
  optimizer.Step(parameters, 1, 0.1);
  EXPECT_NEAR(parameters[0].value.item<float>(), 1.788717, 1e-6);
  EXPECT_NEAR(parameters[1].value.item<float>(), 1.866317, 1e-6);
}

// With zero gradients, matrices shrink and vectors do not change.
TEST(AdamWTest, DecayPullsMatricesTowardsZero) {
  const AdamW optimizer{.weight_decay = 0.5};
  std::vector<Parameter> parameters = {Make(at::full({2, 2}, -2.0f), at::zeros({2, 2})),
                                       Make(at::full({2}, -2.0f), at::zeros({2}))};
  optimizer.Step(parameters, 0, 0.1);
  EXPECT_TRUE(at::allclose(parameters[0].value, at::full({2, 2}, -1.9f)));
  EXPECT_TRUE(at::equal(parameters[1].value, at::full({2}, -2.0f)));
}

}  // namespace
}  // namespace triptych::tools::optimizer_test
