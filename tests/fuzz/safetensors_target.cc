// A file of tensors.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

#include "engine/base/error.h"
#include "engine/checkpoint/safetensors.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/targets.h"

namespace triptych {
namespace {

// A file of these bytes in memory.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : fd_(memfd_create("fuzz", MFD_CLOEXEC)) {
    if (fd_ < 0 || write(fd_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
      throw std::runtime_error("no file can be made in memory");
    }
  }
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  const int fd_;
};

// What a shape takes, or infinity, in numbers that do not overflow; exact where a file is small.
double BytesOf(const StoredTensor& tensor) {
  const size_t digit = tensor.dtype.find_first_of("0123456789");
  double bytes =
      digit == std::string::npos ? 1 : std::stod(tensor.dtype.substr(digit)) / 8;  // BOOL
  for (const int64_t extent : tensor.shape) {
    Promise(extent >= 0, "a shape is not negative");
    bytes *= static_cast<double>(extent);
  }
  return bytes;
}

}  // namespace

void FuzzSafetensors(std::string_view bytes) {
  const MemoryFile file(bytes);
  std::unique_ptr<const SafetensorsFile> opened;
  try {
    opened = std::make_unique<const SafetensorsFile>(file.path());
  } catch (const LoadError& e) {
    PromiseClearLine(e.what(), 1000);
    return;
  }
  const TensorSource& source = *opened;
  // Tensors tile the end of the file.
  uint64_t total = 0;
  for (const std::string& name : source.TensorNames()) {
    const StoredTensor* const stored = source.Find(name);
    Promise(stored != nullptr, "a tensor that is listed is found");
    Promise(stored->bytes <= bytes.size() - total, "tensors lie in the file and do not overlap");
    Promise(BytesOf(*stored) == static_cast<double>(stored->bytes), "a shape tells the bytes");
    total += stored->bytes;
  }
  const std::string_view section = bytes.substr(bytes.size() - total);
  for (const auto& [name, entry] : opened->entries()) {
    std::string data(entry.bytes, '\0');
    source.Read(name, std::as_writable_bytes(std::span(data)));
    Promise(data == section.substr(entry.begin, entry.bytes), "a tensor is read as it is stored");
  }
}

}  // namespace triptych
