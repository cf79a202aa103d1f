// Opened checkpoint: config and tensors of a directory or a GGUF file.
//
// A directory has config.json and its tensors in safetensors (engine/checkpoint/tensors/
// open_tensors.h).
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_OPEN_CHECKPOINT_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_OPEN_CHECKPOINT_H_

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/checkpoint/tensors/tensor_source.h"
#include "engine/model/config.h"

namespace triptych::checkpoint {

class GgufFile;

// Whether a path may be a checkpoint: a directory, or a file whose name ends in ".gguf".
bool MayBeCheckpoint(const std::filesystem::path& path);

// Copies share the open files.
struct OpenedCheckpoint {
  std::filesystem::path path;
  ModelConfig config;
  std::shared_ptr<const TensorSource> tensors;  // by the engine's names; shapes are not checked
  std::shared_ptr<const GgufFile> gguf = {};    // null for a directory
  std::string context_origin = {};              // PublishedConfig's
  std::vector<std::string> warnings = {};       // one line each, for the log
};

// Opens a checkpoint; its config is valid. Throws LoadError.
OpenedCheckpoint OpenCheckpoint(const std::filesystem::path& checkpoint);

// The config of a checkpoint, as OpenCheckpoint has it. A directory needs no tensors. Without all
// of them, a head that config.json ties counts as tied, and quantized experts as the other
// matrices. Throws LoadError.
ModelConfig ReadConfig(const std::filesystem::path& checkpoint);

// The files that determine the computation: the config's, then those of the tensors. Throws
// LoadError.
std::vector<std::filesystem::path> CheckpointFiles(const std::filesystem::path& checkpoint);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_OPEN_CHECKPOINT_H_
