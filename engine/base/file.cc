#include "engine/base/file.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <system_error>

#include "engine/base/error.h"

namespace triptych {

std::string ReadText(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::string text;
  std::array<char, 1 << 16> buffer;
  while (in) {
    in.read(buffer.data(), buffer.size());
    text.append(buffer.data(), in.gcount());
  }
  if (!in.eof()) throw LoadError(file.string() + ": cannot be read: " + std::strerror(errno));
  return text;
}

void ReplaceFile(const std::filesystem::path& path,
                 const std::function<void(std::ostream&)>& write) {
  const std::filesystem::path beside = path.string() + ".tmp";
  std::ofstream out(beside, std::ios::binary | std::ios::trunc);
  write(out);
  out.close();
  if (!out) {
    const std::string reason = std::strerror(errno);  // before removing changes it
    std::error_code ignored;
    std::filesystem::remove(beside, ignored);
    throw std::runtime_error(beside.string() + ": cannot be written: " + reason);
  }
  std::filesystem::rename(beside, path);
}

}  // namespace triptych
