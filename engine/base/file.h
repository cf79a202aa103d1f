// Files that are read and written whole. Torch-free.
#ifndef TRIPTYCH_ENGINE_BASE_FILE_H_
#define TRIPTYCH_ENGINE_BASE_FILE_H_

#include <filesystem>
#include <functional>
#include <ostream>
#include <string>

namespace triptych {

// The file's bytes. Throws LoadError.
std::string ReadText(const std::filesystem::path& file);

// Has `write` write a file beside `path` and renames it there, so that no half-written file is ever
// seen. Throws std::runtime_error.
void ReplaceFile(const std::filesystem::path& path,
                 const std::function<void(std::ostream&)>& write);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BASE_FILE_H_
