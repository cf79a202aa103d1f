// A checkpoint, opened. Torch-free.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_OPEN_CHECKPOINT_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_OPEN_CHECKPOINT_H_

#include <filesystem>
#include <memory>

#include "engine/checkpoint/tensor_source.h"
#include "engine/model/config.h"

namespace triptych {

struct OpenedCheckpoint {
  ModelConfig config;
  std::unique_ptr<const TensorSource> tensors;  // by the engine's names, not all of them checked
};

// Throws LoadError.
OpenedCheckpoint OpenCheckpoint(const std::filesystem::path& directory);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_OPEN_CHECKPOINT_H_
