// Config of a checkpoint and its cost in the KV cache.
#ifndef TRIPTYCH_ENGINE_TOOLS_INSPECT_H_
#define TRIPTYCH_ENGINE_TOOLS_INSPECT_H_

#include <filesystem>
#include <optional>
#include <string>

namespace triptych::tools {

// Prints the config and the cache cost of a checkpoint, and with `list_tensors` its tensors. With
// `device`, named as for CheckDevice, also the bytes that a server takes there, or why the device
// does not serve the model. Throws LoadError, and std::invalid_argument as CheckDevice does.
void Inspect(const std::filesystem::path& model, bool list_tensors,
             const std::optional<std::string>& device = {});

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_INSPECT_H_
