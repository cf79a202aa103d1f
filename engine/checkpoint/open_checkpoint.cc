#include "engine/checkpoint/open_checkpoint.h"

#include <utility>

#include "engine/checkpoint/config_file.h"
#include "engine/checkpoint/mapped_tensors.h"
#include "engine/checkpoint/open_tensors.h"

namespace triptych {

OpenedCheckpoint OpenCheckpoint(const std::filesystem::path& directory) {
  PublishedConfig published = ReadPublishedConfig(directory / kConfigFile);
  std::unique_ptr<const TensorSource> tensors = OpenTensors(directory);
  TensorMap map = published.family->tensors(published.config, *tensors);
  return {.config = std::move(published.config),
          .tensors = std::make_unique<const MappedTensors>(std::move(tensors),
                                                           std::move(map.origins), map.left_out)};
}

}  // namespace triptych
