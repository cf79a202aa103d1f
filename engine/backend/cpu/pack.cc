#include "engine/backend/cpu/pack.h"

#include <stdexcept>

#include "engine/decoder/weights.h"

namespace triptych::cpu {
namespace {

TensorFormat FormatOf(const at::Tensor& weight) {
  for (const auto& [name, format] : Names<TensorFormat>()) {
    if (weight.scalar_type() == ToScalarType(format)) return format;
  }
  throw std::invalid_argument("weights of this dtype cannot be packed; allowed: float32, bfloat16");
}

// Layers that read the same input, as rows of one.
struct StoredLayers {
  std::vector<at::Tensor> kept;  // owns what `rows` points to
  std::vector<kernels::PackedLinear::Rows> rows;
  kernels::PackedLinear::Shape shape;
};

StoredLayers Stored(const std::vector<Linear>& layers) {
  StoredLayers stored;
  for (const Linear& layer : layers) {
    if (!layer.defined()) continue;
    const at::Tensor weight = layer.weight.contiguous();
    const at::Tensor bias =
        layer.bias.defined() ? layer.bias.to(at::kFloat).contiguous() : at::Tensor();
    stored.rows.push_back({.stored = FormatOf(weight),
                           .weight = weight.data_ptr(),
                           .bias = bias.defined() ? bias.data_ptr<float>() : nullptr,
                           .outputs = weight.size(0)});
    stored.shape.outputs += weight.size(0);
    stored.shape.inputs = weight.size(1);
    stored.kept.insert(stored.kept.end(), {weight, bias});
  }
  return stored;
}

}  // namespace

kernels::PackedLinear Pack(const std::vector<Linear>& layers, WeightFormat format,
                           kernels::ThreadPool& pool) {
  const StoredLayers stored = Stored(layers);
  return kernels::PackedLinear(stored.shape, format, stored.rows, pool);
}

void PackGroup(const std::vector<Linear>& layers, int64_t group, kernels::ThreadPool& pool,
               kernels::PackedLinear& packed) {
  packed.PackGroup(group, Stored(layers).rows, pool);
}

kernels::PackedLinear PackHeads(const at::Tensor& weight, WeightFormat format,
                                kernels::ThreadPool& pool) {
  const at::Tensor heads = weight.contiguous();
  const kernels::PackedLinear::Shape shape{heads.size(0), heads.size(1), heads.size(2)};
  return kernels::PackedLinear(shape, format,
                               {{.stored = FormatOf(heads),
                                 .weight = heads.data_ptr(),
                                 .bias = nullptr,
                                 .outputs = shape.groups * shape.outputs}},
                               pool);
}

std::vector<float> ToFloats(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  const at::Tensor floats = tensor.to(at::kFloat).contiguous();
  return {floats.data_ptr<float>(), floats.data_ptr<float>() + floats.numel()};
}

}  // namespace triptych::cpu
