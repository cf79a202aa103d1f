// The tensors of a checkpoint's directory.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_OPEN_TENSORS_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_OPEN_TENSORS_H_

#include <filesystem>
#include <memory>
#include <vector>

#include "engine/checkpoint/tensors/tensor_source.h"

namespace triptych::checkpoint {

// The file that a checkpoint's tensors are written to.
inline constexpr const char* kWeightsFile = "model.safetensors";

// The files of the tensors: model.safetensors if it is there, otherwise the shards that
// model.safetensors.index.json names. Throws LoadError.
std::vector<std::filesystem::path> TensorFiles(const std::filesystem::path& directory);

// The tensors of those files, by their names there. Throws LoadError.
std::unique_ptr<const TensorSource> OpenTensors(const std::filesystem::path& directory);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_OPEN_TENSORS_H_
