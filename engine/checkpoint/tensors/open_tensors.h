// Which files hold the tensors of a checkpoint. Torch-free.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_OPEN_TENSORS_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_OPEN_TENSORS_H_

#include <filesystem>
#include <memory>
#include <vector>

#include "engine/checkpoint/tensors/tensor_source.h"

namespace triptych::checkpoint {

// The file that the tensors of a checkpoint are written to.
inline constexpr const char* kWeightsFile = "model.safetensors";

// The files that hold the tensors of the checkpoint in `directory`: model.safetensors if it is
// there, else the shards that model.safetensors.index.json names. Throws LoadError.
std::vector<std::filesystem::path> TensorFiles(const std::filesystem::path& directory);

// Those tensors, by the names that they have there. Throws LoadError.
std::unique_ptr<const TensorSource> OpenTensors(const std::filesystem::path& directory);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_OPEN_TENSORS_H_
