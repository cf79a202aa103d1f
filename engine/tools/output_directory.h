// Where a tool puts the model that it makes.
#ifndef TRIPTYCH_ENGINE_TOOLS_OUTPUT_DIRECTORY_H_
#define TRIPTYCH_ENGINE_TOOLS_OUTPUT_DIRECTORY_H_

#include <filesystem>
#include <string>

namespace triptych::tools {

// Throws std::runtime_error, naming the flag, unless a model can be made in a directory that is
// absent or empty. Before anything that takes long.
void CheckNewDirectory(const std::string& flag, const std::filesystem::path& directory);

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_OUTPUT_DIRECTORY_H_
