#include "engine/decoder/deepseek_form.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/checkpoint/config/latent_families.h"
#include "engine/decoder/tensor_specs.h"

namespace triptych {
namespace {

// The most that the constants' length may be: their float16 is finite.
constexpr double kLongest = 0x1p15;

// 2^k with k at most `exponent`, as far as weights times it are normal numbers.
double PowerOfTwo(double exponent) {
  return std::ldexp(1, static_cast<int>(std::clamp(std::floor(exponent), -64.0, 64.0)));
}

// Numbers of this format whose squares have the sum of `length`^2, up to the rounding of the
// smaller.
std::array<double, kNormConstants> Constants(double length, TensorFormat format) {
  const auto rounded = [&](double value) {
    return at::scalar_tensor(value, at::kDouble)
        .to(ToScalarType(format))
        .to(at::kDouble)
        .item<double>();
  };
  const double most = rounded(length * (1 - 0x1p-8));  // no more than `length` in either format
  return {most, rounded(std::sqrt(length * length - most * most))};
}

at::Tensor BiasOr0(const Weights& weights, const std::string& name, int64_t size,
                   const at::Tensor& like) {
  const auto found = weights.find(name);
  return found != weights.end() ? found->second : at::zeros({size}, like.options());
}

// The latents of a layer become [s c; 0; constants], of `rank` elements. Their norm divides by
// 2^k sqrt(1 + |s c|^2 / length^2), and its weight multiplies by 2^k / s.
void AddConstants(const ModelConfig& config, int64_t layer, int64_t rank, Weights& weights) {
  const std::string prefix = AttentionPrefix(layer);
  const int64_t r = config.kv_lora_rank[layer], added = rank - r;
  at::Tensor& down = weights.at(prefix + "kv_a_proj_with_mqa.weight");  // [r + d_R, D]
  at::Tensor& up = weights.at(prefix + "kv_b_proj.weight");             // [H * (d + d_v), r]
  const std::string bias_name = prefix + "kv_a_proj_with_mqa.bias";
  const at::Tensor bias = BiasOr0(weights, bias_name, down.size(0), down);

  // Inputs of a layer have a length of sqrt(D) at most, before the weight of their norm.
  const at::Tensor norm = weights.at(LayerPrefix(layer) + "input_layernorm.weight").to(at::kDouble);
  const at::Tensor of_inputs = down.narrow(0, 0, r).to(at::kDouble) * norm;
  const double longest_latent = at::linalg_svdvals(of_inputs).max().item<double>() *
                                    std::sqrt(static_cast<double>(config.hidden_size)) +
                                bias.narrow(0, 0, r).to(at::kDouble).norm().item<double>();
  const double root = std::sqrt(static_cast<double>(rank));
  const double divisor = PowerOfTwo(std::log2(kLongest / root));  // 2^k
  const double length = divisor * root;
  const double scale =  // s
      longest_latent > 0 ? PowerOfTwo(std::log2(length * kLatentShare / longest_latent)) : 1;

  const auto [most, rest] = Constants(length, config.torch_dtype);
  at::Tensor constants = at::zeros({added}, bias.options());
  constants[added - 2] = most;
  constants[added - 1] = rest;
  const auto with_rows = [&](const at::Tensor& rows, const at::Tensor& more) {
    return at::cat({rows.narrow(0, 0, r) * scale, more, rows.narrow(0, r, rows.size(0) - r)});
  };
  weights[bias_name] = with_rows(bias, constants);
  down = with_rows(down, at::zeros({added, down.size(1)}, down.options()));
  up = at::cat({up, at::zeros({up.size(0), added}, up.options())}, 1);
  weights[prefix + "kv_a_layernorm.weight"] =
      at::cat({at::full({r}, divisor / scale, bias.options()), at::zeros({added}, bias.options())});
}

}  // namespace

void CheckDeepseekForm(const ModelConfig& config, const std::string& source) {
  const auto require = [&](bool fits, const std::string& field, const std::string& value,
                           const std::string& allowed) {
    if (fits) return;
    throw LoadError(source + ": " + field + " is " + value +
                    ", which deepseek_v3 has no place for; allowed: " + allowed);
  };
  const auto require_name = [&](const std::string& field, auto value, auto allowed) {
    require(value == allowed, field, "\"" + std::string(Name(value)) + "\"",
            "\"" + std::string(Name(allowed)) + "\"");
  };
  const auto require_flag = [&](const std::string& field, bool value, bool allowed) {
    require(value == allowed, field, value ? "true" : "false", allowed ? "true" : "false");
  };
  require_name("position_embedding", config.position_embedding, PositionEmbedding::kRope);
  require_name("norm", config.norm, NormKind::kRmsNorm);
  require_flag("norm_inputs", config.norm_inputs, true);
  require_flag("norm_outputs", config.norm_outputs, false);
  require_flag("use_parallel_residual", config.use_parallel_residual, false);
  require_name("mlp", config.mlp, MlpKind::kSwiglu);
  require_flag("mlp_bias", config.mlp_bias, false);
  require_flag("qk_norm", config.qk_norm, false);
  require(!config.attention_bias, "attention_bias (of queries)", "true", "false");
  require(config.experts.n_routed_experts == 0, "n_routed_experts",
          std::to_string(config.experts.n_routed_experts), "0");
  require(config.final_logit_softcapping == 0, "final_logit_softcapping",
          Json(config.final_logit_softcapping).dump(), "0");
  if (config.kv_a_layernorm || config.q_lora_rank > 0) {
    require(config.LatentNormEps() == checkpoint::kDeepseekLatentNormEps, "latent_norm_eps",
            Json(config.LatentNormEps()).dump(), Json(checkpoint::kDeepseekLatentNormEps).dump());
  }
  if (config.kv_a_layernorm) {
    const auto [least, most] =
        std::minmax_element(config.kv_lora_rank.begin(), config.kv_lora_rank.end());
    require(*least == *most, "kv_lora_rank",
            std::to_string(*least) + " to " + std::to_string(*most),
            "one rank in all layers, as latents are normed");
  }
}

Checkpoint ToDeepseekForm(Checkpoint model) {
  ModelConfig& config = model.config;
  Weights& weights = model.weights;
  const bool adds_constants = !config.kv_a_layernorm;
  const bool bias = adds_constants || config.latent_bias || config.OutputBias();
  const int64_t rank = *std::max_element(config.kv_lora_rank.begin(), config.kv_lora_rank.end()) +
                       (adds_constants ? kNormConstants : 0);
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string prefix = AttentionPrefix(layer);
    at::Tensor& q =
        weights.at(prefix + (config.q_lora_rank > 0 ? "q_b_proj.weight" : "q_proj.weight"));
    q = q * config.ScoreFactor(layer);
    if (adds_constants) AddConstants(config, layer, rank, weights);
    if (!bias) continue;
    const auto add_bias = [&](const std::string& name) {
      const at::Tensor& of = weights.at(prefix + name + ".weight");
      at::Tensor added = BiasOr0(weights, prefix + name + ".bias", of.size(0), of);
      weights[prefix + name + ".bias"] = added;
    };
    add_bias("kv_a_proj_with_mqa");
    add_bias("o_proj");
    if (config.q_lora_rank > 0) add_bias("q_a_proj");
  }
  // A tied head multiplies by the scaled embedding, too.
  at::Tensor& embedding = weights.at(kEmbeddingName);
  at::Tensor& last_norm = weights.at("model.norm.weight");
  embedding = embedding * config.embedding_multiplier;
  last_norm = last_norm * (config.logit_multiplier /
                           (config.tie_word_embeddings ? config.embedding_multiplier : 1));

  config.v_head_dim = config.ValueDim();
  config.kv_lora_rank.assign(config.num_hidden_layers, rank);
  config.kv_a_layernorm = true;
  config.latent_norm_eps = checkpoint::kDeepseekLatentNormEps;
  config.latent_bias = bias;
  config.attention_output_bias = bias;
  if (config.rope_factors.empty() && config.rope_attention_factor != 1) {  // they go together
    config.rope_factors.assign(config.qk_rope_head_dim / 2, 1);
  }
  config.attention_score_factor = 1;
  config.scale_attn_by_inverse_layer_idx = false;
  config.embedding_multiplier = 1;
  config.logit_multiplier = 1;
  return model;
}

}  // namespace triptych
