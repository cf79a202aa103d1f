// Decoder without its attention (engine/definitions.md#the-decoder), on LibTorch's operations:
// embedding, residual blocks, output matrix.
#ifndef TRIPTYCH_ENGINE_DECODER_FRAME_H_
#define TRIPTYCH_ENGINE_DECODER_FRAME_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "engine/attention/linear.h"
#include "engine/decoder/layer_weights.h"
#include "engine/decoder/weights.h"
#include "engine/model/config.h"

namespace triptych {

// Const methods are safe to call from several threads.
class DecoderFrame {
 public:
  // `weights` holds the tensors of ExpectedTensors(config). They are shared, not copied; those of
  // attention are not kept. Linear layers compute in `compute`, the residual stream and the logits
  // in float32, or in float64 if `compute` is float64.
  DecoderFrame(const ModelConfig& config, const Weights& weights, ComputeType compute);

  // The start of the residual stream.
  //   ids: [..., length] int64   positions: [length] int64   returns [..., length, D]
  at::Tensor Embed(const at::Tensor& ids, const at::Tensor& positions) const;
  // The residual stream after all blocks. attend(layer, normal) returns the output of attention,
  // and add(x, branch) the sum.
  //   x: [..., length, D], of Embed
  //   normal: [..., length, D] in the compute dtype
  //   returns [..., length, D]
  template <typename Attend, typename Add>
  at::Tensor Hidden(at::Tensor x, const Attend& attend, const Add& add) const {
    for (int64_t i = 0; i < config_.num_hidden_layers; ++i) {
      const Layer& layer = layers_[i];
      const at::Tensor normal = Normalize(layer.attention_norm, x).to(compute_dtype_);
      x = add(x, NormalizeOutput(layer.attention_output_norm, attend(i, normal)));
      const at::Tensor mlp_normal =
          config_.use_parallel_residual ? normal : Normalize(layer.mlp_norm, x).to(compute_dtype_);
      x = add(x, NormalizeOutput(layer.mlp_output_norm, Mlp(layer, mlp_normal)));
    }
    return x;
  }
  // hidden: [..., D] -> logits [..., vocab_size]
  at::Tensor Logits(const at::Tensor& hidden) const {
    const at::Tensor logits = output_(Normalize(final_norm_, hidden));
    const double multiplier = config_.logit_multiplier, cap = config_.final_logit_softcapping;
    const at::Tensor scaled = multiplier == 1 ? logits : logits.mul(multiplier);
    return cap > 0 ? scaled.div(cap).tanh().mul(cap) : scaled;
  }

  const ModelConfig& config() const { return config_; }
  at::Device device() const { return token_embedding_.device(); }

 private:
  struct Layer {
    NormWeights attention_norm;
    NormWeights attention_output_norm;
    NormWeights mlp_norm;
    NormWeights mlp_output_norm;
    MlpWeights mlp;          // undefined in a layer with experts
    ExpertsWeights experts;  // undefined without
  };

  // x: [..., D] -> [..., D] in x's dtype; x itself if the config has no such norm.
  at::Tensor Normalize(const NormWeights& norm, const at::Tensor& x) const;
  // branch: [..., D] in the compute dtype -> the same; normed in the residual stream's dtype.
  at::Tensor NormalizeOutput(const NormWeights& norm, const at::Tensor& branch) const {
    return norm.weight.defined() ? Normalize(norm, branch.to(residual_dtype_)) : branch;
  }
  // In the next three functions, x: [..., D] in the compute dtype -> [..., D].
  at::Tensor Mlp(const Layer& layer, const at::Tensor& x) const;
  at::Tensor Mlp(const MlpWeights& mlp, const at::Tensor& x) const;
  at::Tensor Experts(const ExpertsWeights& experts, const at::Tensor& x) const;

  ModelConfig config_;
  at::ScalarType compute_dtype_;
  at::ScalarType residual_dtype_;
  at::Tensor token_embedding_;  // [vocab, D]
  at::Tensor position_table_;   // [max_positions, D], or undefined
  std::vector<Layer> layers_;
  NormWeights final_norm_;
  Linear output_;  // [vocab, D]
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_DECODER_FRAME_H_
