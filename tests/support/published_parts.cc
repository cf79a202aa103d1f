#include "tests/support/published_parts.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>
#include <vector>

namespace triptych::published {
namespace {

constexpr double kPi = std::numbers::pi;

}  // namespace

bool Has(const Json& config, const std::string& field) {
  return config.contains(field) && !config.at(field).is_null();
}

int64_t Size(const Json& config, const std::string& field) {
  return config.at(field).get<int64_t>();
}

int64_t Size(const Json& config, const std::string& field, int64_t otherwise) {
  return Get(config, field, otherwise);
}

int64_t Size(const Json& config, const std::string& field, int64_t absent, int64_t null) {
  return config.contains(field) ? Size(config, field, null) : absent;
}

at::Tensor Find(const Tensors& tensors, const std::string& name) {
  return tensors.at(name).to(at::kDouble);
}

at::Tensor Rotate(const Rotary& rotary, const at::Tensor& x, bool interleaved) {
  const int64_t dim = x.size(2);
  const at::Tensor positions = at::arange(x.size(0), at::kDouble);
  const at::Tensor angles = at::outer(positions, rotary.frequencies).unsqueeze(1);
  const at::Tensor cos = rotary.magnitude * angles.cos();  // [length, 1, dim / 2]
  const at::Tensor sin = rotary.magnitude * angles.sin();
  const at::Tensor a = interleaved ? x.slice(2, 0, dim, 2) : x.slice(2, 0, dim / 2);
  const at::Tensor b = interleaved ? x.slice(2, 1, dim, 2) : x.slice(2, dim / 2, dim);
  const at::Tensor turned_a = a * cos - b * sin;
  const at::Tensor turned_b = a * sin + b * cos;
  return interleaved ? at::stack({turned_a, turned_b}, 3).flatten(2)
                     : at::cat({turned_a, turned_b}, 2);
}

at::Tensor Attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
                  int64_t window, double softcap) {
  const int64_t share = q.size(1) / k.size(1);
  const at::Tensor keys = k.repeat_interleave(share, 1).permute({1, 2, 0});    // [H, d, length]
  const at::Tensor values = v.repeat_interleave(share, 1).permute({1, 0, 2});  // [H, length, d_v]
  at::Tensor scores = scale * q.permute({1, 0, 2}).matmul(keys);  // [H, length, length]
  if (softcap != 0) scores = softcap * (scores / softcap).tanh();
  const at::Tensor to = at::arange(q.size(0), at::kLong);
  const at::Tensor from = to.unsqueeze(1);
  const at::Tensor hidden = to.gt(from).logical_or(to.le(from - window));
  const at::Tensor shares =
      at::softmax(scores.masked_fill(hidden, -std::numeric_limits<double>::infinity()), 2);
  return shares.matmul(values).permute({1, 0, 2}).flatten(1);
}

at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return x / (x.square().mean(-1, true) + eps).sqrt() * weight;
}

at::Tensor LayerNorm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                     double eps) {
  const at::Tensor centred = x - x.mean(-1, true);
  return centred / (centred.square().mean(-1, true) + eps).sqrt() * weight + bias;
}

Json Scaling(const Json& config) {
  return Get<Json>(config, "rope_scaling", Get<Json>(config, "rope_parameters", Json::object()));
}

double YarnMagnitude(double factor, double weight) {
  return factor <= 1 ? 1 : 0.1 * weight * std::log(factor) + 1;
}

Rotary RotaryOf(const Json& config, int64_t dim, int64_t length) {
  const Json scaling = Scaling(config);
  const auto type =
      Get<std::string>(scaling, "rope_type", Get<std::string>(scaling, "type", "default"));
  const double theta = Get(scaling, "rope_theta", Get(config, "rope_theta", 10000.0));
  const at::Tensor frequencies = at::pow(theta, -at::arange(0, dim, 2, at::kDouble) / dim);
  if (type == "default") return {.frequencies = frequencies};
  if (type == "linear") {
    return {.frequencies = frequencies / scaling.at("factor").get<double>()};
  }

  const auto longest = config.at("max_position_embeddings").get<double>();
  // Phi's configs have it next to rope_scaling.
  const double beside =
      type == "longrope" ? Get(config, "original_max_position_embeddings", longest) : longest;
  const double original = Get(scaling, "original_max_position_embeddings", beside);
  if (type == "llama3") {
    // https://arxiv.org/abs/2407.21783, and Meta's code: pairs that turn slowly in the original
    // context are slowed down by the factor, fast ones are not.
    const auto factor = scaling.at("factor").get<double>();
    const auto low = scaling.at("low_freq_factor").get<double>();
    const auto high = scaling.at("high_freq_factor").get<double>();
    const at::Tensor turns = original * frequencies / (2 * kPi);
    const at::Tensor kept = ((turns - low) / (high - low)).clamp(0, 1);
    return {.frequencies = frequencies * ((1 - kept) / factor + kept)};
  }
  if (type == "yarn") {
    // Section 3 of https://arxiv.org/abs/2309.00071.
    const auto factor = scaling.at("factor").get<double>();
    // The (fractional) index of the pair that makes `turns` turns in the original context.
    const auto pair_of = [&](double turns) {
      return static_cast<double>(dim) * std::log(original / (turns * 2 * kPi)) /
             (2 * std::log(theta));
    };
    double low = pair_of(Get(scaling, "beta_fast", 32.0));
    double high = pair_of(Get(scaling, "beta_slow", 1.0));
    if (Get(scaling, "truncate", true)) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, static_cast<double>(dim - 1));
    if (low == high) high += 0.001;
    const at::Tensor slowed = ((at::arange(dim / 2, at::kDouble) - low) / (high - low)).clamp(0, 1);

    if (Has(scaling, "mscale") != Has(scaling, "mscale_all_dim")) {
      throw std::invalid_argument("mscale without mscale_all_dim: published code disagrees");
    }
    double magnitude = YarnMagnitude(factor, 1);
    if (Has(scaling, "mscale")) {
      magnitude = YarnMagnitude(factor, scaling.at("mscale").get<double>()) /
                  YarnMagnitude(factor, scaling.at("mscale_all_dim").get<double>());
    }
    return {.frequencies = frequencies * (slowed / factor + (1 - slowed)),
            .magnitude = Get(scaling, "attention_factor", magnitude)};
  }
  if (type == "longrope") {
    // https://arxiv.org/abs/2402.13753.
    const char* table = static_cast<double>(length) > original ? "long_factor" : "short_factor";
    const auto divisors = scaling.at(table).get<std::vector<double>>();
    const double factor = Get(scaling, "factor", longest / original);
    const double magnitude = factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(original));
    return {.frequencies = frequencies / at::tensor(at::ArrayRef<double>(divisors), at::kDouble),
            .magnitude = Get(scaling, "attention_factor", magnitude)};
  }
  throw std::invalid_argument("rope_type " + type);
}

at::Tensor Activate(const std::string& name, const at::Tensor& x) {
  if (name == "silu") return x / (1 + (-x).exp());
  if (name == "gelu") return x / 2 * (1 + (x / std::numbers::sqrt2).erf());
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") {
    return x / 2 * (1 + (std::sqrt(2 / kPi) * (x + 0.044715 * x * x * x)).tanh());
  }
  if (name == "relu2") return at::where(x > 0, x * x, at::zeros_like(x));
  throw std::invalid_argument("activation " + name);
}

}  // namespace triptych::published
