#include "engine/checkpoint/tensors/quantized_matrices.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/checkpoint/tensors/decoded_tensors.h"
#include "engine/checkpoint/tensors/quantized_matrix.h"

namespace triptych::checkpoint {
namespace {

using Layout = PublishedQuantization::Layout;

// Ending of the tensor with the integers, which makes a module a quantized one.
const char* EndingOf(Layout layout) {
  switch (layout) {
    case Layout::kGptq:
    case Layout::kAwq:
      return ".qweight";
    case Layout::kPacked:
      return ".weight_packed";
    case Layout::kIntegers:
    case Layout::kFloat8:
      return ".weight";
  }
  return "";
}

// Tensors of activations and of caches.
bool IsOfActivations(std::string_view name) {
  for (const std::string_view ending :
       {".input_scale", ".input_zero_point", ".output_scale", ".output_zero_point", ".k_scale",
        ".v_scale", ".q_scale", ".kv_scale"}) {
    if (name.ends_with(ending)) return true;
  }
  return false;
}

// Whether the config has the bias of a module of a layer.
bool HasBias(const ModelConfig& config, const std::string& module) {
  if (module.ends_with(".o_proj.")) return config.OutputBias();
  if (module.find(".mlp.") != module.npos) return config.mlp_bias;
  return config.attention_bias || config.latent_bias;
}

// Whether a tensor holds the integers of a quantized matrix.
bool IsQuantized(const TensorSource& source, const std::string& name, const std::string& ending) {
  const std::string& dtype = source.Find(name)->dtype;
  const bool stored_as_numbers = dtype == "F16" || dtype == "BF16" || dtype == "F32";
  return name.ends_with(ending) && (ending != ".weight" || !stored_as_numbers);
}

bool AllZero(const TensorSource& source, const std::string& tensor) {
  const auto bytes = ReadAllOf<std::byte>(source, tensor);
  return std::all_of(bytes.begin(), bytes.end(),
                     [](std::byte byte) { return byte == std::byte{}; });
}

}  // namespace

std::shared_ptr<const TensorSource> DecodeMatrices(std::shared_ptr<const TensorSource> source,
                                                   const PublishedQuantization& quantization,
                                                   const ModelConfig& config) {
  const std::string ending = EndingOf(quantization.layout);
  std::map<std::string, DecodedOrigin> origins;
  std::set<std::string> left_out;
  for (const std::string& name : source->TensorNames()) {
    if (IsOfActivations(name)) left_out.insert(name);
    if (!IsQuantized(*source, name, ending)) continue;
    const std::string module = name.substr(0, name.size() - ending.size() + 1);
    const QuantizedMatrix matrix = FindQuantizedMatrix(*source, quantization, module, name);
    left_out.insert({matrix.integers, matrix.scales, matrix.zeros, matrix.order});
    left_out.insert(module + "weight_shape");
    const std::string bias = module + "bias";
    if (source->Find(bias) != nullptr && !HasBias(config, module) && AllZero(*source, bias)) {
      left_out.insert(bias);
    }
    origins[module + "weight"] = {
        .tensor = name,
        .shape = {matrix.outputs, matrix.inputs},
        .decode = [matrix](const TensorSource& stored, uint64_t, std::span<float> numbers) {
          DecodeQuantizedMatrix(stored, matrix, numbers);
        }};
  }
  return std::make_shared<const DecodedTensors>(std::move(source), std::move(origins), left_out);
}

WeightFormats NearestFormats(const TensorSource& source, const PublishedQuantization& quantization,
                             const ModelConfig& config) {
  const std::string ending = EndingOf(quantization.layout);
  bool experts = false, others = false;
  for (const std::string& name : source.TensorNames()) {
    if (!IsQuantized(source, name, ending)) continue;
    (name.find(".experts.") != name.npos ? experts : others) = true;
  }
  const WeightFormat numbers = ToWeightFormat(config.torch_dtype);
  const WeightFormat nearest = quantization.Nearest();
  return {experts && !others ? numbers : nearest, numbers, others && !experts ? numbers : nearest};
}

}  // namespace triptych::checkpoint
