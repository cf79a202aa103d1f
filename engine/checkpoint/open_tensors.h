// Which files hold the tensors of a checkpoint. Torch-free.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_OPEN_TENSORS_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_OPEN_TENSORS_H_

#include <filesystem>
#include <memory>

#include "engine/checkpoint/tensor_source.h"

namespace triptych {

// The file that the tensors of a checkpoint are written to.
inline constexpr const char* kWeightsFile = "model.safetensors";

// The tensors of the checkpoint in `directory`. Throws LoadError.
std::unique_ptr<const TensorSource> OpenTensors(const std::filesystem::path& directory);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_OPEN_TENSORS_H_
