#include "engine/tools/gradients.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "tests/support/random_model.h"
#include "tests/support/tensors.h"

namespace triptych::tools::gradients_test {
namespace {

class BatchGradientsTest : public testing::TestWithParam<NamedConfig> {
 protected:
  BatchGradientsTest() {
    for (auto& [name, tensor] : Cast(RandomWeights(config_, 1), at::kFloat)) {
      parameters_.push_back({name, tensor, {}, {}, {}});
    }
  }

  // Random windows of `length`.
  Window Windows(int64_t batch, int64_t length) const {
    std::mt19937_64 generator(5);
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < batch * (length + 1); ++i) {
      ids.push_back(static_cast<int64_t>(generator() % config_.vocab_size));
    }
    const at::Tensor all = ToTensor(ids).to(at::kLong).view({batch, length + 1});
    return {all.narrow(1, 0, length).contiguous(), all.narrow(1, 1, length).contiguous()};
  }

  // Gradients of the mean of -log p(target), in float64, by one product of the whole batch.
  Weights Expected(const Window& window) const {
    Weights leaves;
    for (const Parameter& p : parameters_) {
      leaves.emplace(p.name, p.value.to(at::kDouble).requires_grad_());
    }
    const at::Tensor log_p =
        at::log_softmax(Decoder(config_, leaves, ComputeType::kFloat64).Forward(window.inputs), -1);
    (-log_p.gather(2, window.targets.unsqueeze(2)).mean()).backward();
    Weights gradients;
    for (const auto& [name, leaf] : leaves) gradients.emplace(name, leaf.grad());
    return gradients;
  }

  const ModelConfig config_ = GetParam().config;
  std::vector<Parameter> parameters_;
};

// The batch may be divided evenly or unevenly among threads, and in pieces.
TEST_P(BatchGradientsTest, AreThoseOfTheMeanLoss) {
  // 64 windows of 64 tokens are more than a thread computes at once.
  for (const auto& [batch, length] : std::vector<std::pair<int64_t, int64_t>>{{5, 16}, {65, 64}}) {
    const Window window = Windows(batch, length);
    const Weights expected = Expected(window);
    for (const int64_t threads : {1, 2, 3}) {
      BatchGradients gradients(config_, parameters_, ComputeType::kFloat32, {}, threads);
      std::mt19937_64 generator(1);
      gradients.Compute(window, /*dropout=*/0, generator, parameters_);
      // float32 sums of up to 4160 terms.
      for (const Parameter& p : parameters_) {
        EXPECT_LT(RelativeError(p.gradient, expected.at(p.name)), 1e-4)
            << p.name << ", " << threads << " threads, batch of " << batch;
      }
    }
  }
}

// bfloat16 products, with eight bits of precision, are off by that and no more.
TEST_P(BatchGradientsTest, Bfloat16ProductsGiveNearGradients) {
  const Window window = Windows(5, 16);
  const Weights expected = Expected(window);
  BatchGradients gradients(config_, parameters_, ComputeType::kBFloat16, {}, 2);
  std::mt19937_64 generator(1);
  gradients.Compute(window, /*dropout=*/0, generator, parameters_);
  double most = 0;
  for (const Parameter& p : parameters_) {
    const double error = RelativeError(p.gradient, expected.at(p.name));
    EXPECT_LT(error, 0.05) << p.name;
    most = std::max(most, error);
  }
  EXPECT_GT(most, 1e-4);
}

// A call does not depend on the one before.
TEST_P(BatchGradientsTest, AreIndependentOfEarlierCalls) {
  const Window window = Windows(4, 8);
  BatchGradients gradients(config_, parameters_, ComputeType::kFloat32, {}, 2);
  std::vector<at::Tensor> first;
  for (int call = 0; call < 2; ++call) {
    std::mt19937_64 generator(1);
    gradients.Compute(window, /*dropout=*/0.3, generator, parameters_);
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (call == 0) {
        first.push_back(parameters_[i].gradient.clone());
      } else {
        EXPECT_TRUE(at::equal(parameters_[i].gradient, first[i])) << parameters_[i].name;
      }
    }
  }
}

// The generator determines dropout, of each thread.
TEST_P(BatchGradientsTest, DropoutMovesTheLoss) {
  const Window window = Windows(4, 8);
  BatchGradients gradients(config_, parameters_, ComputeType::kFloat32, {}, 2);
  const auto loss = [&](double dropout, uint64_t seed) {
    std::mt19937_64 generator(seed);
    return gradients.Compute(window, dropout, generator, parameters_);
  };
  EXPECT_EQ(loss(0, 1), loss(0, 2));
  EXPECT_EQ(loss(0.3, 1), loss(0.3, 1));
  EXPECT_NE(loss(0.3, 1), loss(0.3, 2));
  EXPECT_NE(loss(0.3, 1), loss(0, 1));
}

// The loss is (1 - w) of the text's cross entropy and w of the cross entropy with the teachers: the
// mean of their probabilities.
TEST_P(BatchGradientsTest, TeachersHaveTheirShare) {
  const Window window = Windows(3, 8);
  const Weights teacher = Cast(RandomWeights(config_, 2), at::kFloat);
  const Weights other = Cast(RandomWeights(config_, 3), at::kFloat);
  const auto loss = [&](double weight, bool both = false) {
    Teachers teachers{.decoders = {}, .weight = weight};
    teachers.decoders.emplace_back(config_, teacher, ComputeType::kFloat32);
    if (both) teachers.decoders.emplace_back(config_, other, ComputeType::kFloat32);
    BatchGradients gradients(config_, parameters_, ComputeType::kFloat32, std::move(teachers), 2);
    std::mt19937_64 generator(1);
    return gradients.Compute(window, 0, generator, parameters_);
  };
  const at::NoGradGuard no_grad;
  Weights student;
  for (const Parameter& p : parameters_) student.emplace(p.name, p.value);
  const auto log_p = [&](const Weights& weights) {
    return at::log_softmax(
        Decoder(config_, weights, ComputeType::kFloat32).Forward(window.inputs).to(at::kDouble),
        -1);
  };
  const at::Tensor written = log_p(student);
  const double text = -written.gather(2, window.targets.unsqueeze(2)).mean().item<double>();
  const double taught = -(log_p(teacher).exp() * written).sum(-1).mean().item<double>();
  ASSERT_GT(std::abs(text - taught), 0.01);
  EXPECT_NEAR(loss(0), text, 1e-5);  // of float32 logits
  EXPECT_NEAR(loss(1), taught, 1e-5);
  EXPECT_NEAR(loss(0.25), 0.75 * text + 0.25 * taught, 1e-5);
  const at::Tensor mean = (log_p(teacher).exp() + log_p(other).exp()) / 2;
  const double by_both = -(mean * written).sum(-1).mean().item<double>();
  ASSERT_GT(std::abs(taught - by_both), 1e-3);
  EXPECT_NEAR(loss(1, /*both=*/true), by_both, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Kinds, BatchGradientsTest, testing::ValuesIn(EachKind()),
                         [](const auto& config) { return config.param.name; });

}  // namespace
}  // namespace triptych::tools::gradients_test
