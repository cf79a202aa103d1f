#include "engine/decoder/frame.h"

#include <ATen/ATen.h>

#include "engine/attention/rms_norm.h"
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
                       .mlp = FindMlp(weights, layer)});
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

at::Tensor DecoderFrame::Mlp(const MlpWeights& mlp, const at::Tensor& x) const {
  const auto activated = [&](const at::Tensor& inner) {
    switch (config_.hidden_act) {
      case HiddenAct::kSilu:
        return at::silu(inner);
      case HiddenAct::kGelu:
        return at::gelu(inner, "tanh");
      case HiddenAct::kGeluExact:
        return at::gelu(inner, "none");
    }
    return at::Tensor();
  };
  return mlp.down(config_.GatesMlp() ? activated(mlp.gate(x)) * mlp.up(x) : activated(mlp.up(x)));
}

}  // namespace triptych
