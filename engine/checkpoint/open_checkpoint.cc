#include "engine/checkpoint/open_checkpoint.h"

#include <system_error>
#include <utility>

#include "engine/checkpoint/config/config_file.h"
#include "engine/checkpoint/gguf_model.h"
#include "engine/checkpoint/tensors/mapped_tensors.h"
#include "engine/checkpoint/tensors/open_tensors.h"
#include "engine/checkpoint/tensors/quantized_matrices.h"

namespace triptych::checkpoint {

bool MayBeCheckpoint(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored) ||
         (IsGgufFile(path) && std::filesystem::exists(path, ignored));
}

OpenedCheckpoint OpenCheckpoint(const std::filesystem::path& checkpoint) {
  if (IsGgufFile(checkpoint)) {
    auto file = std::make_shared<const GgufFile>(checkpoint);
    ModelConfig config = ReadGgufConfig(*file);
    std::shared_ptr<const TensorSource> tensors = MapGgufTensors(file, config);
    return {.path = checkpoint,
            .config = std::move(config),
            .tensors = std::move(tensors),
            .gguf = std::move(file)};
  }
  PublishedConfig published = ReadPublishedConfig(checkpoint / kConfigFile);
  std::shared_ptr<const TensorSource> tensors = OpenTensors(checkpoint);
  if (published.quantization) {
    tensors = DecodeMatrices(std::move(tensors), *published.quantization, published.config);
  }
  TensorMap map = published.family->tensors(published.config, *tensors);
  return {.path = checkpoint,
          .config = std::move(published.config),
          .tensors = std::make_shared<const MappedTensors>(std::move(tensors),
                                                           std::move(map.origins), map.left_out),
          .window_is_context = published.window_is_context};
}

ModelConfig ReadConfig(const std::filesystem::path& checkpoint) {
  if (IsGgufFile(checkpoint)) return ReadGgufConfig(GgufFile(checkpoint));
  return ReadModelConfig(checkpoint / kConfigFile);
}

std::vector<std::filesystem::path> CheckpointFiles(const std::filesystem::path& checkpoint) {
  if (IsGgufFile(checkpoint)) return GgufFile(checkpoint).files();
  std::vector<std::filesystem::path> files = TensorFiles(checkpoint);
  files.insert(files.begin(), checkpoint / kConfigFile);
  return files;
}

}  // namespace triptych::checkpoint
