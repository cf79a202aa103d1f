#include "engine/backend/cuda/pack/pack_cuda_weights.h"

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "engine/attention/grouped_attention.h"
#include "engine/attention/latent_attention.h"
#include "engine/decoder/layer_weights.h"
#include "engine/decoder/tensor_specs.h"
#include "engine/model/latent_shape.h"

namespace triptych {
namespace {

CudaVector ToVector(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  const at::Tensor floats = tensor.to(at::kFloat).contiguous();
  const float* const elements = floats.data_ptr<float>();
  return {.size = floats.numel(), .elements = {elements, elements + floats.numel()}};
}

CudaNorm ToNorm(const NormWeights& norm) {
  return {.weight = ToVector(norm.weight), .bias = ToVector(norm.bias)};
}

// weight: [.., outputs, inputs]
CudaMatrix ToMatrix(const at::Tensor& weight) {
  const at::Tensor rounded = weight.to(at::kBFloat16).contiguous();
  const auto* const bits = static_cast<const uint16_t*>(rounded.data_ptr());
  return {.outputs = rounded.numel() / rounded.size(-1),
          .inputs = rounded.size(-1),
          .elements = {bits, bits + rounded.numel()}};
}

// Concatenates layers that read the same input; skips those that are not defined.
void Join(const std::vector<Linear>& layers, CudaMatrix& matrix, CudaVector& bias) {
  std::vector<at::Tensor> weights, biases;
  bool biased = false;
  for (const Linear& layer : layers) {
    if (!layer.defined()) continue;
    weights.push_back(layer.weight);
    biased = biased || layer.bias.defined();
    biases.push_back(layer.bias.defined() ? layer.bias.to(at::kFloat)
                                          : at::zeros({layer.weight.size(0)}, at::kFloat));
  }
  matrix = ToMatrix(at::cat(weights));
  if (biased) bias = ToVector(at::cat(biases));
}

void PackGrouped(const GroupedWeights& weights, CudaLayerWeights& layer) {
  Join({weights.q, weights.k, weights.v}, layer.in, layer.in_bias);
  layer.q_norm = ToVector(weights.q_norm);
  layer.k_norm = ToVector(weights.k_norm);
  Join({weights.o}, layer.o, layer.o_bias);
}

void PackLatent(const ReducedWeights& weights, CudaLayerWeights& layer) {
  const bool low_rank = weights.q_a.defined();
  Join({low_rank ? weights.q_a : weights.q, weights.kv_a, weights.k}, layer.in, layer.in_bias);
  if (low_rank) {
    layer.query_norm = ToVector(weights.q_norm);
    Join({weights.q}, layer.query_up, layer.query_up_bias);
  }
  layer.latent_norm = ToVector(weights.latent_norm);
  if (weights.form == ReducedForm::kFactored) {
    layer.uk = ToMatrix(weights.uk.transpose(1, 2));
    layer.uv = ToMatrix(weights.uv);
  }
  Join({weights.o}, layer.o, layer.o_bias);
}

}  // namespace

CudaNorm CheckpointCudaWeights::TakeNorm(const std::string& name) {
  return ToNorm(FindNorm(source_.Take(name), name));
}

CudaVector CheckpointCudaWeights::TakeVector(const std::string& name) {
  return ToVector(source_.Take(name).at(name));
}

CudaMatrix CheckpointCudaWeights::TakeMatrix(const char* name) {
  return ToMatrix(source_.Take(name).at(name));
}

CudaSharedWeights CheckpointCudaWeights::Shared() {
  const LayerRotary rotary = MakeRotary(config_, at::kCPU);
  CudaSharedWeights shared{
      .positions = ToVector(PositionTable(config_, source_.Take(kPositionsName), at::kCPU)),
      .rotation = ToVector(rotary.shared.Table()),
      .local_rotation = ToVector(rotary.local.Table()),
      .final_norm = TakeNorm(kFinalNormName)};
  for (CudaVector* part : {&shared.final_norm.weight, &shared.final_norm.bias}) {
    for (float& element : part->elements) element *= static_cast<float>(config_.logit_multiplier);
  }
  return shared;
}

CudaMatrix CheckpointCudaWeights::Embedding() {
  return config_.tie_word_embeddings ? CudaMatrix{} : TakeMatrix(kEmbeddingName);
}

CudaMatrix CheckpointCudaWeights::Output() {
  return TakeMatrix(config_.tie_word_embeddings ? kEmbeddingName : kOutputName);
}

CudaLayerWeights CheckpointCudaWeights::Layer(int64_t index) {
  CudaLayerWeights layer;
  layer.attention_norm = TakeNorm(AttentionNormName(index));
  {
    const Weights weights = source_.Take(AttentionPrefix(index));
    if (config_.attention == AttentionKind::kMla) {
      const LatentShape shape = LatentShapeOf(config_, index);
      PackLatent(Reduce(shape, FindLatent(weights, index), SmallerForm(shape, config_.hidden_size)),
                 layer);
    } else {
      PackGrouped(FindGrouped(weights, index), layer);
    }
  }
  layer.attention_output_norm = TakeNorm(AttentionOutputNormName(index));
  layer.mlp_norm = TakeNorm(MlpNormName(index));
  layer.mlp_output_norm = TakeNorm(MlpOutputNormName(index));
  if (config_.HasExperts(index)) {
    const ExpertsConfig& experts = config_.experts;
    layer.router = TakeVector(RouterName(index));
    if (experts.topk_method == TopkMethod::kNoauxTc) {
      layer.router_bias = TakeVector(RouterBiasName(index));
    }
    if (experts.shared_expert_intermediate_size == 0) return layer;
    if (experts.shared_expert_gate) layer.shared_gate = TakeVector(SharedExpertGateName(index));
  }
  const std::string prefix =
      config_.HasExperts(index) ? SharedExpertsPrefix(index) : MlpPrefix(index);
  const Weights weights = source_.Take(prefix);
  const MlpWeights mlp = FindMlp(weights, prefix);
  Join({mlp.gate, mlp.up}, layer.mlp_in, layer.mlp_in_bias);
  Join({mlp.down}, layer.mlp_down, layer.mlp_down_bias);
  return layer;
}

CudaExpert CheckpointCudaWeights::Expert(int64_t layer, int64_t index) {
  const std::string prefix = ExpertPrefix(layer, index);
  const Weights weights = source_.Take(prefix);
  const MlpWeights mlp = FindMlp(weights, prefix);
  CudaExpert expert;
  CudaVector none;
  Join({mlp.gate, mlp.up}, expert.in, none);
  Join({mlp.down}, expert.down, none);
  return expert;
}

}  // namespace triptych
