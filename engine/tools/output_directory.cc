#include "engine/tools/output_directory.h"

#include <stdexcept>
#include <system_error>

#include "engine/base/file.h"

namespace triptych::tools {

void CheckNewDirectory(const std::string& flag, const std::filesystem::path& directory) {
  std::error_code unknown;  // CheckOutputDirectory reports it, and a link to nowhere
  if (std::filesystem::exists(directory, unknown) && !IsEmptyDirectory(directory)) {
    throw std::runtime_error(flag + " " + directory.string() +
                             ": exists and is not an empty directory");
  }
  CheckOutputDirectory(directory);
}

}  // namespace triptych::tools
