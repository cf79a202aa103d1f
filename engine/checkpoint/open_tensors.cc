#include "engine/checkpoint/open_tensors.h"

#include "engine/checkpoint/safetensors.h"

namespace triptych {

std::unique_ptr<const TensorSource> OpenTensors(const std::filesystem::path& directory) {
  return std::make_unique<const SafetensorsFile>(directory / kWeightsFile);
}

}  // namespace triptych
