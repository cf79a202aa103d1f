#include "tests/support/published_experts.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

namespace triptych::published {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

bool IsDeepseek(const std::string& family) {
  return family == "deepseek_v2" || family == "deepseek_v3" || family == "kimi_k2" ||
         family == "glm4_moe_lite";
}

std::vector<double> Values(const at::Tensor& row) {
  const at::Tensor copy = row.to(at::kDouble).contiguous();
  return {copy.data_ptr<double>(), copy.data_ptr<double>() + copy.numel()};
}

// The places of the `count` largest; of equal ones the first.
std::vector<size_t> Best(std::vector<double> values, int64_t count) {
  std::vector<size_t> best;
  for (int64_t i = 0; i < count; ++i) {
    size_t top = 0;
    for (size_t j = 1; j < values.size(); ++j) {
      if (values[j] > values[top]) top = j;
    }
    best.push_back(top);
    values[top] = kNever;
  }
  return best;
}

// Choices by these scores are within the best groups.
std::vector<double> WithinGroups(const Json& config, bool sum_of_two, std::vector<double> scores) {
  const auto groups = static_cast<size_t>(Size(config, "n_group"));
  const size_t size = scores.size() / groups;
  std::vector<double> ranks;
  for (size_t g = 0; g < groups; ++g) {
    std::vector<double> own(scores.begin() + static_cast<int64_t>(g * size),
                            scores.begin() + static_cast<int64_t>((g + 1) * size));
    std::sort(own.begin(), own.end());
    ranks.push_back(own.back() + (sum_of_two && size > 1 ? own[size - 2] : 0));
  }
  const std::vector<size_t> kept = Best(ranks, Size(config, "topk_group"));
  for (size_t i = 0; i < scores.size(); ++i) {
    if (std::find(kept.begin(), kept.end(), i / size) == kept.end()) scores[i] = kNever;
  }
  return scores;
}

// The weight of each expert for one token; 0 for those that it does not choose.
std::vector<double> Weights(const Json& config, const Tensors& tensors, const std::string& layer,
                            const std::vector<double>& logits) {
  const auto family = config.at("model_type").get<std::string>();
  const int64_t count = Size(config, "num_experts_per_tok");
  const bool sigmoid = IsDeepseek(family) && family != "deepseek_v2";
  std::vector<double> scores;
  double all = 0;
  for (const double logit : logits) all += std::exp(logit);
  for (const double logit : logits) {
    scores.push_back(sigmoid ? 1 / (1 + std::exp(-logit)) : std::exp(logit) / all);
  }
  std::vector<double> ranks = scores;
  if (sigmoid) {
    const std::vector<double> bias =
        Values(Find(tensors, layer + "mlp.gate.e_score_correction_bias"));
    for (size_t i = 0; i < ranks.size(); ++i) ranks[i] += bias[i];
    ranks = WithinGroups(config, true, ranks);
  } else if (family == "deepseek_v2" &&
             Get<std::string>(config, "topk_method", "greedy") == "group_limited_greedy") {
    ranks = WithinGroups(config, false, ranks);
  }
  const std::vector<size_t> chosen = Best(ranks, count);
  double sum = 0;
  for (const size_t expert : chosen) sum += scores[expert];
  const bool always = family == "mixtral" || family == "granitemoe";
  const bool normalized =
      always || (Get(config, "norm_topk_prob", false) && (!IsDeepseek(family) || count > 1));
  const double scale = IsDeepseek(family) ? Get(config, "routed_scaling_factor", 1.0) : 1;
  std::vector<double> weights(scores.size());
  for (const size_t expert : chosen) {
    weights[expert] = normalized ? scores[expert] / sum : scores[expert];
    if (!normalized || sigmoid) weights[expert] *= scale;
  }
  return weights;
}

at::Tensor Gated(const at::Tensor& gate, const at::Tensor& up, const at::Tensor& down,
                 const at::Tensor& x) {
  return (Activate("silu", x.matmul(gate.t())) * x.matmul(up.t())).matmul(down.t());
}

// An MLP of three tensors.
at::Tensor Mlp(const Tensors& tensors, const std::string& mlp, const at::Tensor& x) {
  return Gated(Find(tensors, mlp + "gate_proj.weight"), Find(tensors, mlp + "up_proj.weight"),
               Find(tensors, mlp + "down_proj.weight"), x);
}

at::Tensor Expert(const Json& config, const Tensors& tensors, const std::string& layer,
                  int64_t expert, const at::Tensor& x) {
  const auto family = config.at("model_type").get<std::string>();
  const std::string number = std::to_string(expert) + ".";
  if (family == "granitemoe") {
    const at::Tensor in = Find(tensors, layer + "block_sparse_moe.input_linear.weight")[expert];
    const int64_t inner = in.size(0) / 2;
    return Gated(in.slice(0, 0, inner), in.slice(0, inner),
                 Find(tensors, layer + "block_sparse_moe.output_linear.weight")[expert], x);
  }
  if (family == "mixtral") {
    const std::string own = layer + "block_sparse_moe.experts." + number;
    return Gated(Find(tensors, own + "w1.weight"), Find(tensors, own + "w3.weight"),
                 Find(tensors, own + "w2.weight"), x);
  }
  return Mlp(tensors, layer + "mlp.experts." + number, x);
}

const char* RouterOf(const std::string& family) {
  if (family == "granitemoe") return "block_sparse_moe.router.layer.weight";
  return family == "mixtral" ? "block_sparse_moe.gate.weight" : "mlp.gate.weight";
}

}  // namespace

int64_t ExpertsOf(const Json& config, int64_t layer) {
  const auto family = config.at("model_type").get<std::string>();
  if (family == "mixtral" || family == "granitemoe") return Size(config, "num_local_experts");
  if (family == "olmoe") return Size(config, "num_experts");
  if (family == "qwen2_moe" || family == "qwen3_moe") {
    const auto dense = Get<std::vector<int64_t>>(config, "mlp_only_layers", {});
    const bool sparse = (layer + 1) % Size(config, "decoder_sparse_step", 1) == 0 &&
                        std::find(dense.begin(), dense.end(), layer) == dense.end();
    return sparse ? Size(config, "num_experts") : 0;
  }
  if (!IsDeepseek(family) || !Has(config, "n_routed_experts")) return 0;
  if (Has(config, "mlp_layer_types")) {
    const bool sparse = config.at("mlp_layer_types").at(static_cast<size_t>(layer)) == "sparse";
    return sparse ? Size(config, "n_routed_experts") : 0;
  }
  const bool sparse = layer >= Size(config, "first_k_dense_replace", 0) &&
                      layer % Size(config, "moe_layer_freq", 1) == 0;
  return sparse ? Size(config, "n_routed_experts") : 0;
}

at::Tensor MixExperts(const Json& config, const Tensors& tensors, const std::string& layer,
                      const at::Tensor& x) {
  const auto family = config.at("model_type").get<std::string>();
  const at::Tensor logits = x.matmul(Find(tensors, layer + RouterOf(family)).t());
  std::vector<at::Tensor> rows;
  for (int64_t token = 0; token < x.size(0); ++token) {
    const at::Tensor row = x.slice(0, token, token + 1);
    const std::vector<double> weights = Weights(config, tensors, layer, Values(logits[token]));
    at::Tensor sum = at::zeros_like(row);
    for (size_t expert = 0; expert < weights.size(); ++expert) {
      if (weights[expert] == 0) continue;
      sum =
          sum + weights[expert] * Expert(config, tensors, layer, static_cast<int64_t>(expert), row);
    }
    if (IsDeepseek(family) && Size(config, "n_shared_experts", 0) > 0) {
      sum = sum + Mlp(tensors, layer + "mlp.shared_experts.", row);
    }
    if (family == "qwen2_moe") {
      const at::Tensor gate =
          row.matmul(Find(tensors, layer + "mlp.shared_expert_gate.weight").t()).sigmoid();
      sum = sum + gate * Mlp(tensors, layer + "mlp.shared_expert.", row);
    }
    rows.push_back(sum);
  }
  return at::cat(rows);
}

}  // namespace triptych::published
