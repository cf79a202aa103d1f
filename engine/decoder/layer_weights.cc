#include "engine/decoder/layer_weights.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "engine/decoder/tensor_specs.h"

namespace triptych {
namespace {

at::Tensor Find(const Weights& weights, const std::string& name) {
  const auto found = weights.find(name);
  return found == weights.end() ? at::Tensor() : found->second;
}

Linear FindLinear(const Weights& weights, const std::string& name) {
  return {.weight = Find(weights, name + ".weight"), .bias = Find(weights, name + ".bias")};
}

}  // namespace

NormWeights FindNorm(const Weights& weights, const std::string& name) {
  return {.weight = Find(weights, name + ".weight"), .bias = Find(weights, name + ".bias")};
}

MlpWeights FindMlp(const Weights& weights, const std::string& prefix) {
  return {.gate = FindLinear(weights, prefix + "gate_proj"),
          .up = FindLinear(weights, prefix + "up_proj"),
          .down = FindLinear(weights, prefix + "down_proj")};
}

ExpertsWeights FindExperts(const ModelConfig& config, const Weights& weights, int64_t layer) {
  ExpertsWeights experts{.router = Find(weights, RouterName(layer)),
                         .correction_bias = Find(weights, RouterBiasName(layer)),
                         .routed = {},
                         .shared = FindMlp(weights, SharedExpertsPrefix(layer)),
                         .shared_gate = Find(weights, SharedExpertGateName(layer))};
  for (int64_t expert = 0; expert < config.experts.n_routed_experts; ++expert) {
    experts.routed.push_back(FindMlp(weights, ExpertPrefix(layer, expert)));
  }
  return experts;
}

GroupedWeights FindGrouped(const Weights& weights, int64_t layer) {
  const std::string attention = AttentionPrefix(layer);
  return {.q = FindLinear(weights, attention + "q_proj"),
          .k = FindLinear(weights, attention + "k_proj"),
          .v = FindLinear(weights, attention + "v_proj"),
          .o = FindLinear(weights, attention + "o_proj"),
          .q_norm = Find(weights, attention + "q_norm.weight"),
          .k_norm = Find(weights, attention + "k_norm.weight")};
}

LatentWeights FindLatent(const Weights& weights, int64_t layer) {
  const std::string attention = AttentionPrefix(layer);
  const bool low_rank = weights.contains(attention + "q_b_proj.weight");
  return {.q_a = FindLinear(weights, attention + "q_a_proj"),
          .q_norm = Find(weights, attention + "q_a_layernorm.weight"),
          .q = FindLinear(weights, attention + (low_rank ? "q_b_proj" : "q_proj")),
          .kv_a = FindLinear(weights, attention + "kv_a_proj_with_mqa"),
          .latent_norm = Find(weights, attention + "kv_a_layernorm.weight"),
          .kv_b = weights.at(attention + "kv_b_proj.weight"),
          .o = FindLinear(weights, attention + "o_proj"),
          .k = FindLinear(weights, attention + "k_proj"),
          .head_norm = Find(weights, attention + "q_norm.weight")};
}

GroupedOptions GroupedOptionsOf(const ModelConfig& config, int64_t layer,
                                const LayerRotary& rotary) {
  return {.rotary = config.Rotates(layer) ? rotary.Of(config, layer) : Rotary(),
          .norm_eps = config.norm_eps,
          .score_factor = config.ScoreFactor(layer),
          .softcap = config.attn_logit_softcapping,
          .window = config.Window(layer)};
}

std::string AttentionNormName(int64_t layer) { return LayerPrefix(layer) + "input_layernorm"; }
std::string MlpNormName(int64_t layer) { return LayerPrefix(layer) + "post_attention_layernorm"; }
std::string AttentionOutputNormName(int64_t layer) {
  return LayerPrefix(layer) + "post_self_attn_layernorm";
}
std::string MlpOutputNormName(int64_t layer) { return LayerPrefix(layer) + "post_mlp_layernorm"; }

at::Tensor FindOutputMatrix(const ModelConfig& config, const Weights& weights) {
  return weights.at(config.tie_word_embeddings ? kEmbeddingName : kOutputName);
}

at::Tensor SinusoidalPositions(int64_t positions, int64_t width) {
  const at::Tensor exponents = at::arange(0, width, 2, at::kDouble) / static_cast<double>(width);
  const at::Tensor frequencies = at::pow(at::scalar_tensor(10000.0, at::kDouble), -exponents);
  const at::Tensor table = at::empty({positions, width}, at::kDouble);
  constexpr int64_t kSlice = 4096;  // only the angles of one slice are in memory besides the table
  for (int64_t first = 0; first < positions; first += kSlice) {
    const int64_t end = std::min(first + kSlice, positions);
    const at::Tensor angles = at::arange(first, end, at::kDouble).unsqueeze(1) * frequencies;
    table.narrow(0, first, end - first)
        .copy_(at::stack({angles.sin(), angles.cos()}, -1).flatten(1));
  }
  return table;
}

at::Tensor PositionTable(const ModelConfig& config, const Weights& weights, at::Device device) {
  switch (config.position_embedding) {
    case PositionEmbedding::kLearned:
      return weights.at(kPositionsName);
    case PositionEmbedding::kSinusoidal:
      return SinusoidalPositions(config.max_position_embeddings, config.hidden_size).to(device);
    case PositionEmbedding::kRope:
    case PositionEmbedding::kNone:
      return {};
  }
  return {};
}

LayerRotary MakeRotary(const ModelConfig& config, at::Device device) {
  if (config.position_embedding != PositionEmbedding::kRope) return {};
  const int64_t positions = config.max_position_embeddings;
  LayerRotary rotary{
      .shared = Rotary(positions, config.RotaryDim(), config.rope_theta, device,
                       config.rope_factors, config.rope_attention_factor, config.RotaryTableDim()),
      .local = {}};
  if (config.rope_local_base_freq > 0) {
    rotary.local = Rotary(positions, config.RotaryDim(), config.rope_local_base_freq, device, {}, 1,
                          config.RotaryTableDim());
  }
  return rotary;
}

}  // namespace triptych
