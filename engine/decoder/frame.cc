#include "engine/decoder/frame.h"

#include <ATen/ATen.h>

#include <cstddef>

#include "engine/attention/rms_norm.h"
#include "engine/decoder/experts.h"
#include "engine/decoder/tensor_specs.h"

namespace triptych {

DecoderFrame::DecoderFrame(const ModelConfig& config, const Weights& weights, ComputeType compute)
    : config_(config),
      compute_dtype_(ToScalarType(compute)),
      residual_dtype_(compute_dtype_ == at::kDouble ? at::kDouble : at::kFloat),
      token_embedding_(weights.at(kEmbeddingName)),
      position_table_(PositionTable(config, weights, token_embedding_.device())),
      final_norm_(FindNorm(weights, kFinalNormName)),
      output_{FindOutputMatrix(config, weights), {}} {
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    layers_.push_back({.attention_norm = FindNorm(weights, AttentionNormName(layer)),
                       .attention_output_norm = FindNorm(weights, AttentionOutputNormName(layer)),
                       .mlp_norm = FindNorm(weights, MlpNormName(layer)),
                       .mlp_output_norm = FindNorm(weights, MlpOutputNormName(layer)),
                       .mlp = FindMlp(weights, MlpPrefix(layer)),
                       .experts = config.HasExperts(layer) ? FindExperts(config, weights, layer)
                                                           : ExpertsWeights()});
  }
}

at::Tensor DecoderFrame::Embed(const at::Tensor& ids, const at::Tensor& positions) const {
  at::Tensor tokens = at::embedding(token_embedding_, ids).to(residual_dtype_);
  if (config_.embedding_multiplier != 1) tokens = tokens * config_.embedding_multiplier;
  if (!position_table_.defined()) return tokens;
  return tokens + at::embedding(position_table_, positions).to(residual_dtype_);
}

at::Tensor DecoderFrame::Normalize(const NormWeights& norm, const at::Tensor& x) const {
  if (!norm.weight.defined()) return x;
  switch (config_.norm) {
    case NormKind::kRmsNorm:
      return RmsNorm(x, norm.weight, config_.norm_eps);
    case NormKind::kLayerNorm: {
      const at::Tensor bias = norm.bias.defined() ? norm.bias.to(x.scalar_type()) : at::Tensor();
      return at::layer_norm(x, {x.size(-1)}, norm.weight.to(x.scalar_type()), bias,
                            config_.norm_eps);
    }
  }
  return {};
}

at::Tensor DecoderFrame::Mlp(const Layer& layer, const at::Tensor& x) const {
  return layer.experts.router.defined() ? Experts(layer.experts, x) : Mlp(layer.mlp, x);
}

at::Tensor DecoderFrame::Experts(const ExpertsWeights& experts, const at::Tensor& x) const {
  const at::Tensor rows = x.flatten(0, -2);  // [tokens, D]
  const ExpertChoice choice = ChooseExperts(config_.experts, experts, rows);
  at::Tensor sum = at::zeros_like(rows, choice.weights.scalar_type());
  if (experts.shared.up.defined()) {
    at::Tensor shared = Mlp(experts.shared, rows).to(sum.scalar_type());
    if (experts.shared_gate.defined()) {
      shared = shared * at::sigmoid(at::linear(rows.to(sum.scalar_type()),
                                               experts.shared_gate.to(sum.scalar_type())));
    }
    sum = sum + shared;
  }
  for (size_t expert = 0; expert < experts.routed.size(); ++expert) {
    const at::Tensor chosen = at::nonzero(choice.experts == static_cast<int64_t>(expert));
    if (chosen.size(0) == 0) continue;
    const at::Tensor tokens = chosen.select(1, 0), ranks = chosen.select(1, 1);
    const at::Tensor out = Mlp(experts.routed[expert], rows.index_select(0, tokens));
    const at::Tensor weight = choice.weights.index({tokens, ranks}).unsqueeze(1);
    sum = sum.index_add(0, tokens, out.to(sum.scalar_type()) * weight);
  }
  return sum.to(x.scalar_type()).view(x.sizes());
}

at::Tensor DecoderFrame::Mlp(const MlpWeights& mlp, const at::Tensor& x) const {
  const auto activated = [&](const at::Tensor& inner) {
    switch (config_.hidden_act) {
      case HiddenAct::kSilu:
        return at::silu(inner);
      case HiddenAct::kGelu:
        return at::gelu(inner, "tanh");
      case HiddenAct::kGeluExact:
        return at::gelu(inner, "none");
      case HiddenAct::kRelu2:
        return at::square(at::relu(inner));
    }
    return at::Tensor();
  };
  return mlp.down(config_.GatesMlp() ? activated(mlp.gate(x)) * mlp.up(x) : activated(mlp.up(x)));
}

}  // namespace triptych
