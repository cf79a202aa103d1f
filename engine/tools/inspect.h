// What a checkpoint is, and what serving it costs.
#ifndef TRIPTYCH_ENGINE_TOOLS_INSPECT_H_
#define TRIPTYCH_ENGINE_TOOLS_INSPECT_H_

#include <filesystem>

namespace triptych::tools {

// Prints the config, the tensors and the cache cost of a checked checkpoint. Throws LoadError.
void Inspect(const std::filesystem::path& model, bool list_tensors);

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_INSPECT_H_
