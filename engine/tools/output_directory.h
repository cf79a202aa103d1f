// Check of the output directory of a new model.
#ifndef TRIPTYCH_ENGINE_TOOLS_OUTPUT_DIRECTORY_H_
#define TRIPTYCH_ENGINE_TOOLS_OUTPUT_DIRECTORY_H_

#include <filesystem>
#include <string>

namespace triptych::tools {

// Throws std::runtime_error, with the flag's name, unless `directory` is absent or empty and can be
// written. Meant to be called before any long computation.
void CheckNewDirectory(const std::string& flag, const std::filesystem::path& directory);

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_OUTPUT_DIRECTORY_H_
