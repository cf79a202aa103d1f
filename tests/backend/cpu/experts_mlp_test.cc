#include "engine/backend/cpu/experts_mlp.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "engine/backend/cpu/pack_weights.h"
#include "engine/decoder/tensor_specs.h"
#include "engine/decoder/weights.h"
#include "tests/support/random_model.h"

namespace triptych::cpu::experts_mlp_test {
namespace {

// Widths that are not multiples of a vector; the second layer is dense.
ModelConfig Config() {
  ModelConfig config = SmallModel(AttentionKind::kGqa);
  config.experts = {.n_routed_experts = 12,
                    .num_experts_per_tok = 3,
                    .moe_intermediate_size = 37,
                    .sparse_layers = {1, 0}};
  return config;
}

std::vector<NamedConfig> Configs() {
  std::vector<NamedConfig> configs;
  const auto add = [&](const std::string& name) -> ModelConfig& {
    return configs.emplace_back(NamedConfig{name, Config()}).config;
  };
  add("Greedy");
  {
    ExpertsConfig& experts = add("NormalizedSharedGate").experts;
    experts.norm_topk_prob = true;
    experts.shared_expert_intermediate_size = 21;
    experts.shared_expert_gate = true;
  }
  {
    ExpertsConfig& experts = add("GroupsShared").experts;
    experts.topk_method = TopkMethod::kGroupLimitedGreedy;
    experts.n_group = 4;
    experts.topk_group = 2;
    experts.routed_scaling_factor = 16;
    experts.shared_expert_intermediate_size = 40;
  }
  {
    ExpertsConfig& experts = add("BiasSigmoid").experts;
    experts.scoring_func = ScoringFunc::kSigmoid;
    experts.topk_method = TopkMethod::kNoauxTc;
    experts.n_group = 3;
    experts.topk_group = 2;
    experts.norm_topk_prob = true;
    experts.routed_scaling_factor = 2.5;
  }
  {
    ModelConfig& config = add("GegluEveryExpert");
    config.mlp = MlpKind::kGeglu;
    config.hidden_act = HiddenAct::kGelu;
    config.experts.num_experts_per_tok = 12;
  }
  return configs;
}

using Vector = std::vector<double>;

// y = W x.
Vector Times(const Weights& weights, const std::string& name, const Vector& x) {
  const at::Tensor& w = weights.at(name);
  Vector y(w.size(0));
  for (int64_t i = 0; i < w.size(0); ++i) {
    for (int64_t k = 0; k < w.size(1); ++k) y[i] += w[i][k].item<double>() * x[k];
  }
  return y;
}

Vector Mlp(const ModelConfig& config, const Weights& weights, const std::string& prefix,
           const Vector& x) {
  Vector gate = Times(weights, prefix + "gate_proj.weight", x);
  const Vector up = Times(weights, prefix + "up_proj.weight", x);
  for (size_t i = 0; i < gate.size(); ++i) {
    const double g = gate[i];
    const double cubic = std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g);
    gate[i] = up[i] * (config.mlp == MlpKind::kGeglu ? g / 2 * (1 + std::tanh(cubic))
                                                     : g / (1 + std::exp(-g)));
  }
  return Times(weights, prefix + "down_proj.weight", gate);
}

// The definition of a layer with experts, in float64 (engine/definitions.md#experts).
Vector Definition(const ModelConfig& config, const Weights& weights, const Vector& x) {
  const ExpertsConfig& experts = config.experts;
  Vector scores = Times(weights, RouterName(0), x);
  double all = 0;
  for (const double logit : scores) all += std::exp(logit);
  for (double& score : scores) {
    score = experts.scoring_func == ScoringFunc::kSigmoid ? 1 / (1 + std::exp(-score))
                                                          : std::exp(score) / all;
  }
  Vector biased = scores;
  const bool bias = experts.topk_method == TopkMethod::kNoauxTc;
  for (size_t i = 0; bias && i < biased.size(); ++i) {
    biased[i] += weights.at(RouterBiasName(0))[static_cast<int64_t>(i)].item<double>();
  }
  const auto best = [](const Vector& values, int64_t most) {
    std::vector<size_t> indices(values.size());
    std::iota(indices.begin(), indices.end(), 0);
    std::stable_sort(indices.begin(), indices.end(),
                     [&](size_t a, size_t b) { return values[a] > values[b]; });
    indices.resize(most);
    return indices;
  };
  const int64_t size = experts.n_routed_experts / experts.n_group;
  Vector groups(experts.n_group);
  for (int64_t group = 0; group < experts.n_group; ++group) {
    Vector members(biased.begin() + group * size, biased.begin() + (group + 1) * size);
    std::sort(members.rbegin(), members.rend());
    groups[group] = members[0] + (bias ? members[1] : 0);
  }
  Vector allowed(biased.size(), -INFINITY);
  for (const size_t group : best(groups, experts.topk_group)) {
    std::copy_n(biased.begin() + group * size, size, allowed.begin() + group * size);
  }
  const std::vector<size_t> chosen = best(allowed, experts.num_experts_per_tok);
  double sum = 0;
  for (const size_t expert : chosen) sum += scores[expert];
  Vector y(x.size());
  const auto add = [&](const std::string& prefix, double factor) {
    const Vector out = Mlp(config, weights, prefix, x);
    for (size_t i = 0; i < y.size(); ++i) y[i] += factor * out[i];
  };
  for (const size_t expert : chosen) {
    add(ExpertPrefix(0, static_cast<int64_t>(expert)),
        experts.routed_scaling_factor * scores[expert] / (experts.norm_topk_prob ? sum : 1));
  }
  if (experts.shared_expert_intermediate_size == 0) return y;
  double gate = 1;
  if (experts.shared_expert_gate) {
    gate = 1 / (1 + std::exp(-Times(weights, SharedExpertGateName(0), x)[0]));
  }
  add(SharedExpertsPrefix(0), gate);
  return y;
}

std::vector<float> RandomRows(int64_t rows, int64_t width) {
  std::mt19937_64 generator(8);
  std::normal_distribution<float> normal;
  std::vector<float> x(rows * width);
  for (float& element : x) element = normal(generator);
  return x;
}

class ExpertsMlpTest : public testing::TestWithParam<NamedConfig> {
 protected:
  const ModelConfig config_ = GetParam().config;
  const int64_t width_ = config_.hidden_size;
  const Weights weights_ = RandomWeights(config_, 3);
};

TEST_P(ExpertsMlpTest, IsTheDefinition) {
  kernels::KernelContext context(2);
  const CpuWeights packed =
      PackWeights(config_, Cast(weights_, at::kFloat), WeightFormat::kFloat32, {}, context.pool);
  constexpr int64_t kRows = 9;
  const std::vector<float> x = RandomRows(kRows, width_);
  std::vector<float> y(x.size());
  packed.layers[0].mlp->Apply(x.data(), kRows, y.data(), context);
  const Weights rounded = Cast(Cast(weights_, at::kFloat), at::kDouble);
  for (int64_t row = 0; row < kRows; ++row) {
    const Vector expected =
        Definition(config_, rounded, Vector(&x[row * width_], &x[row * width_] + width_));
    double scale = 0;
    for (const double element : expected) scale = std::max(scale, std::abs(element));
    for (int64_t i = 0; i < width_; ++i) {
      ASSERT_NEAR(y[row * width_ + i], expected[i], 1e-5 * scale) << "row " << row;
    }
  }
}

// Bit-identical: alone, among rows that fill several slices, and on any number of threads.
TEST_P(ExpertsMlpTest, ARowIsTheSameInEveryBatch) {
  for (const auto& [name, format] : Names<WeightFormat>()) {
    SCOPED_TRACE(name);
    kernels::KernelContext one(1), many(3);
    const WeightFormats formats(WeightFormat::kFloat32, WeightFormat::kFloat32, format);
    const CpuWeights packed =
        PackWeights(config_, Cast(weights_, at::kFloat), formats, {}, one.pool);
    const MlpLayer& mlp = *packed.layers[0].mlp;
    constexpr int64_t kRows = 1100;
    std::vector<float> x = RandomRows(kRows, width_);
    // Many equal rows: one expert alone fills a slice.
    for (int64_t row = 0; row < 1050; ++row) std::copy_n(&x[0], width_, &x[row * width_]);
    std::vector<float> all(x.size()), y(x.size());
    mlp.Apply(x.data(), kRows, all.data(), many);
    mlp.Apply(x.data(), kRows, y.data(), one);
    EXPECT_EQ(y, all);
    for (const int64_t row : {0, 700, 1049, 1050, 1077, 1099}) {
      std::vector<float> alone(width_);
      mlp.Apply(&x[row * width_], 1, alone.data(), one);
      const auto begin = all.begin() + row * width_;
      EXPECT_EQ(alone, std::vector<float>(begin, begin + width_)) << "row " << row;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Routers, ExpertsMlpTest, testing::ValuesIn(Configs()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace triptych::cpu::experts_mlp_test
