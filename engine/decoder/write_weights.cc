#include "engine/decoder/write_weights.h"

#include <ATen/ATen.h>

#include <cstddef>
#include <set>
#include <stdexcept>
#include <system_error>
#include <vector>

#include "engine/base/file.h"
#include "engine/checkpoint/tensors/integer_rows.h"
#include "engine/checkpoint/tensors/open_tensors.h"
#include "engine/checkpoint/tensors/safetensors.h"
#include "engine/checkpoint/tensors/safetensors_index.h"
#include "engine/decoder/integer_matrix.h"
#include "engine/decoder/tensor_specs.h"

namespace triptych {
namespace {

const char* SafetensorsName(TensorFormat format) {
  switch (format) {
    case TensorFormat::kFloat32:
      return "F32";
    case TensorFormat::kBFloat16:
      return "BF16";
  }
  return "";
}

// Weights and config are whole on the disk before the first of them takes its place. An old config
// is removed before, so that it never describes the new weights.
void WriteFiles(const std::filesystem::path& directory, const ModelConfig& config,
                const Weights& weights, const std::string& card,
                const std::map<std::string, std::string>& others, checkpoint::ConfigForm form) {
  for (const char* file : {checkpoint::kWeightsFile, checkpoint::kConfigFile}) {
    if (std::filesystem::is_directory(directory / file)) {
      throw std::runtime_error((directory / file).string() + ": cannot be written: Is a directory");
    }
  }
  std::vector<at::Tensor> kept;  // the memory of `tensors`
  std::vector<checkpoint::SafetensorsTensor> tensors;
  const auto add = [&](const std::string& name, const char* dtype, const at::Tensor& tensor) {
    kept.push_back(tensor);
    tensors.push_back({name,
                       dtype,
                       tensor.sizes().vec(),
                       {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()}});
  };
  const std::set<std::string> integers = IntegerTensors(config);
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    const at::Tensor weight = weights.at(spec.name).detach();
    if (integers.contains(spec.name)) {
      const WeightFormat format = config.quantization->format;
      const IntegerMatrix matrix = ToIntegers(weight, format);
      add(spec.name, checkpoint::IntegerRowOf(format, spec.shape[1]).dtype, matrix.integers);
      add(checkpoint::ScalesName(spec.name), SafetensorsName(TensorFormat::kBFloat16),
          matrix.scales);
    } else {
      add(spec.name, SafetensorsName(config.torch_dtype),
          weight.to(ToScalarType(config.torch_dtype)).contiguous());
    }
  }
  StagedFile weights_file(directory / checkpoint::kWeightsFile);
  checkpoint::WriteSafetensors(weights_file, tensors, {{"format", "pt"}});
  weights_file.Sync();
  StagedFile config_file(directory / checkpoint::kConfigFile);
  config_file.Write(checkpoint::ToJson(config, form));
  config_file.Sync();
  if (!card.empty()) ReplaceFile(directory / kCardFile, card);
  for (const auto& [name, text] : others) {
    const std::filesystem::path file = directory / name;
    std::filesystem::create_directories(file.parent_path());
    ReplaceFile(file, text);
  }
  std::filesystem::remove(directory / checkpoint::kConfigFile);
  weights_file.Commit();
  config_file.Commit();
}

}  // namespace

bool HoldsModel(const std::filesystem::path& directory) {
  return Exists(directory / checkpoint::kWeightsFile) || Exists(directory / checkpoint::kIndexFile);
}

void SaveCheckpoint(const std::filesystem::path& directory, const ModelConfig& config,
                    const Weights& weights, const std::string& card,
                    const std::map<std::string, std::string>& others, checkpoint::ConfigForm form) {
  CheckOutputDirectory(directory);
  if (Exists(directory)) {
    WriteFiles(directory, config, weights, card, others, form);
    return;
  }
  std::filesystem::path place = directory;
  if (!place.has_filename()) place = place.parent_path();  // "DIR/"
  if (place.has_parent_path()) std::filesystem::create_directories(place.parent_path());
  const std::filesystem::path staging = MakeUniqueDirectory(place);
  try {
    WriteFiles(staging, config, weights, card, others, form);
    std::filesystem::rename(staging, place);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove_all(staging, ignored);
    throw;
  }
}

}  // namespace triptych
