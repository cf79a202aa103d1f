#include "engine/checkpoint/tensors/open_tensors.h"

#include <system_error>

#include "engine/checkpoint/tensors/safetensors.h"
#include "engine/checkpoint/tensors/safetensors_index.h"

namespace triptych::checkpoint {

namespace {

bool IsSharded(const std::filesystem::path& directory) {
  std::error_code ignored;  // opening the file reports it
  return !std::filesystem::exists(directory / kWeightsFile, ignored) &&
         std::filesystem::exists(directory / kIndexFile, ignored);
}

}  // namespace

std::vector<std::filesystem::path> TensorFiles(const std::filesystem::path& directory) {
  if (IsSharded(directory)) return ShardFiles(directory / kIndexFile);
  return {directory / kWeightsFile};
}

std::unique_ptr<const TensorSource> OpenTensors(const std::filesystem::path& directory) {
  if (IsSharded(directory)) return std::make_unique<const ShardedTensors>(directory / kIndexFile);
  return std::make_unique<const SafetensorsFile>(directory / kWeightsFile);
}

}  // namespace triptych::checkpoint
