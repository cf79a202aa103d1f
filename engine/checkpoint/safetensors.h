// The safetensors container: named tensors behind a JSON header. Torch-free.
// Format: https://huggingface.co/docs/safetensors
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_SAFETENSORS_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace triptych {

struct SafetensorsEntry {
  std::string dtype;           // as the file spells it: "F32", "BF16", ...
  std::vector<int64_t> shape;  // each at least 0
  // Of the tensor's bytes in the data section.
  uint64_t begin = 0;
  uint64_t end = 0;
};

// Reads the header of the file whose bytes are `file`: 8 bytes of the header's length, the header
// as JSON, the data section. Entries are checked: known dtype, no overflow, byte size equal to
// shape times element size, inside the file, neither overlapping nor leaving gaps. Throws
// LoadError; `source` is the file's name for messages.
std::map<std::string, SafetensorsEntry> ParseSafetensorsHeader(std::span<const std::byte> file,
                                                               const std::string& source);

// A memory-mapped file, checked when opened. Immutable and thread-safe.
class SafetensorsFile {
 public:
  // Throws LoadError.
  explicit SafetensorsFile(const std::filesystem::path& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::map<std::string, SafetensorsEntry>& entries() const { return entries_; }
  // The tensor's bytes, little-endian, not necessarily aligned; valid as long as this object.
  std::span<const std::byte> Data(const SafetensorsEntry& entry) const;

 private:
  std::span<const std::byte> file_;
  std::span<const std::byte> data_;
  std::map<std::string, SafetensorsEntry> entries_;
};

struct SafetensorsTensor {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;
};

// Writes with ReplaceFile. Throws std::runtime_error.
void WriteSafetensors(const std::filesystem::path& path,
                      const std::vector<SafetensorsTensor>& tensors,
                      const std::map<std::string, std::string>& metadata = {});

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_SAFETENSORS_H_
