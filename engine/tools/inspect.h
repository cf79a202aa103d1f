// Config of a checkpoint and its cost in the KV cache.
#ifndef TRIPTYCH_ENGINE_TOOLS_INSPECT_H_
#define TRIPTYCH_ENGINE_TOOLS_INSPECT_H_

#include <filesystem>

namespace triptych::tools {

// Prints the config and the cache cost of a checkpoint, and with `list_tensors` its tensors. Throws
// LoadError.
void Inspect(const std::filesystem::path& model, bool list_tensors);

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_INSPECT_H_
