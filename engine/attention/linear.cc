#include "engine/attention/linear.h"

namespace triptych {
namespace {

// weight: [groups, outputs, inputs], bias: [groups, outputs] or undefined
PackedLinear PackGroups(const at::Tensor& weight, const at::Tensor& bias) {
  const at::Tensor rows = weight.contiguous();
  const at::Tensor wide_bias = bias.defined() ? bias.to(at::kFloat).contiguous() : at::Tensor();
  const PackedLinear::Shape shape{rows.size(0), rows.size(1), rows.size(2)};
  const float* bias_data = bias.defined() ? wide_bias.data_ptr<float>() : nullptr;
  const WeightFormat format =
      rows.scalar_type() == at::kFloat ? WeightFormat::kFloat32 : WeightFormat::kBFloat16;
  return {shape, format, rows.data_ptr(), bias_data};
}

}  // namespace

PackedLinear Pack(const std::vector<Linear>& layers) {
  std::vector<at::Tensor> weights, biases;
  bool any_bias = false;
  for (const Linear& layer : layers) {
    if (!layer.defined()) continue;
    weights.push_back(layer.weight);
    any_bias = any_bias || layer.bias.defined();
    biases.push_back(layer.bias.defined() ? layer.bias.to(at::kFloat)
                                          : at::zeros({layer.weight.size(0)}, at::kFloat));
  }
  return PackGroups(at::cat(weights).unsqueeze(0), any_bias ? at::cat(biases) : at::Tensor());
}

PackedLinear PackHeads(const at::Tensor& weight) { return PackGroups(weight, {}); }

std::vector<float> ToFloats(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  const at::Tensor floats = tensor.to(at::kFloat).contiguous();
  return {floats.data_ptr<float>(), floats.data_ptr<float>() + floats.numel()};
}

}  // namespace triptych
