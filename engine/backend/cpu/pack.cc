#include "engine/backend/cpu/pack.h"

#include <stdexcept>

#include "engine/decoder/weights.h"

namespace triptych {
namespace {

TensorFormat FormatOf(const at::Tensor& weight) {
  for (const auto& [name, format] : Names<TensorFormat>()) {
    if (weight.scalar_type() == ToScalarType(format)) return format;
  }
  throw std::invalid_argument("weights that are neither float32 nor bfloat16 cannot be packed");
}

// weight: [groups, outputs, inputs], bias: [groups, outputs] or undefined
PackedLinear PackGroups(const at::Tensor& weight, const at::Tensor& bias, WeightFormat format,
                        ThreadPool& pool) {
  const at::Tensor rows = weight.contiguous();
  const at::Tensor wide_bias = bias.defined() ? bias.to(at::kFloat).contiguous() : at::Tensor();
  const PackedLinear::Shape shape{rows.size(0), rows.size(1), rows.size(2)};
  return PackedLinear(shape, format, FormatOf(rows), rows.data_ptr(),
                      bias.defined() ? wide_bias.data_ptr<float>() : nullptr, pool);
}

}  // namespace

PackedLinear Pack(const std::vector<Linear>& layers, WeightFormat format, ThreadPool& pool) {
  std::vector<at::Tensor> weights, biases;
  bool any_bias = false;
  for (const Linear& layer : layers) {
    if (!layer.defined()) continue;
    weights.push_back(layer.weight);
    any_bias = any_bias || layer.bias.defined();
    biases.push_back(layer.bias.defined() ? layer.bias.to(at::kFloat)
                                          : at::zeros({layer.weight.size(0)}, at::kFloat));
  }
  const at::Tensor weight = weights.size() == 1 ? weights.front() : at::cat(weights);
  return PackGroups(weight.unsqueeze(0), any_bias ? at::cat(biases) : at::Tensor(), format, pool);
}

PackedLinear PackHeads(const at::Tensor& weight, WeightFormat format, ThreadPool& pool) {
  return PackGroups(weight, {}, format, pool);
}

std::vector<float> ToFloats(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  const at::Tensor floats = tensor.to(at::kFloat).contiguous();
  return {floats.data_ptr<float>(), floats.data_ptr<float>() + floats.numel()};
}

}  // namespace triptych
