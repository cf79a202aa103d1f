// A checkpoint, opened, whatever files it is. Torch-free.
//
// A checkpoint is a directory with config.json and its tensors in safetensors
// (engine/checkpoint/tensors/open_tensors.h), or a GGUF file.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_OPEN_CHECKPOINT_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_OPEN_CHECKPOINT_H_

#include <filesystem>
#include <memory>
#include <vector>

#include "engine/checkpoint/tensors/tensor_source.h"
#include "engine/model/config.h"

namespace triptych::checkpoint {

class GgufFile;

// Whether a path may be one: a directory, or a file whose name ends in ".gguf".
bool MayBeCheckpoint(const std::filesystem::path& path);

// Copies share what is open.
struct OpenedCheckpoint {
  std::filesystem::path path;
  ModelConfig config;
  std::shared_ptr<const TensorSource> tensors;  // by the engine's names, not all of them checked
  std::shared_ptr<const GgufFile> gguf = {};    // what it is in, unless that is a directory
  bool window_is_context = false;               // PublishedConfig's
};

// Throws LoadError.
OpenedCheckpoint OpenCheckpoint(const std::filesystem::path& checkpoint);

// Its config alone. Throws LoadError.
ModelConfig ReadConfig(const std::filesystem::path& checkpoint);

// The files that say what it computes: the one with its config, then those with its tensors. Throws
// LoadError.
std::vector<std::filesystem::path> CheckpointFiles(const std::filesystem::path& checkpoint);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_OPEN_CHECKPOINT_H_
