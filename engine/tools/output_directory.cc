#include "engine/tools/output_directory.h"

#include <stdexcept>

#include "engine/base/file.h"

namespace triptych::tools {

void CheckNewDirectory(const std::string& flag, const std::filesystem::path& directory) {
  if (Exists(directory) && !IsEmptyDirectory(directory)) {
    throw std::runtime_error(flag + " " + directory.string() +
                             ": exists and is not an empty directory");
  }
  CheckOutputDirectory(directory);
}

}  // namespace triptych::tools
