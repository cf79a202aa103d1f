// The safetensors container: named tensors behind a JSON header. Torch-free.
// Format: https://huggingface.co/docs/safetensors
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_SAFETENSORS_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/base/file.h"
#include "engine/checkpoint/tensors/tensor_source.h"

namespace triptych::checkpoint {

struct SafetensorsEntry : StoredTensor {
  // Where the tensor's bytes lie in the data section; there are end - begin = `bytes` of them.
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::map<std::string, SafetensorsEntry> entries;
  uint64_t data_begin = 0;  // of the data section in the file
};

// Fills `bytes` with what stands at `offset` in a file.
using ReadBytes = std::function<void(uint64_t offset, std::span<std::byte> bytes)>;

// Reads the header of a file of `file_bytes`: 8 bytes of the header's length, the header as JSON,
// the data section. Each of the first two is read once. Entries are checked: known dtype, no
// overflow, byte size equal to shape times element size, inside the file, neither overlapping nor
// leaving gaps. Throws LoadError; `source` is the file's name for messages.
SafetensorsHeader ReadSafetensorsHeader(uint64_t file_bytes, const ReadBytes& read,
                                        const std::string& source);

// A file whose header was checked when it was opened. Tensors are read when they are asked for, so
// that a file that changes meanwhile can give wrong numbers or LoadError, and nothing worse.
class SafetensorsFile final : public TensorSource {
 public:
  // Throws LoadError.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::map<std::string, SafetensorsEntry>& entries() const { return header_.entries; }
  uint64_t data_begin() const { return header_.data_begin; }

  const std::string& name() const override { return file_.name(); }
  std::vector<std::string> TensorNames() const override;
  const StoredTensor* Find(const std::string& tensor) const override;
  void Read(const std::string& tensor, std::span<std::byte> bytes) const override;

 private:
  InputFile file_;
  SafetensorsHeader header_;
};

struct SafetensorsTensor {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;
};

// Writes all of a file into `file`, which is not committed. Throws std::runtime_error.
void WriteSafetensors(StagedFile& file, const std::vector<SafetensorsTensor>& tensors,
                      const std::map<std::string, std::string>& metadata = {});
// Replaces the file at `path`. Throws std::runtime_error.
void WriteSafetensors(const std::filesystem::path& path,
                      const std::vector<SafetensorsTensor>& tensors,
                      const std::map<std::string, std::string>& metadata = {});

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_SAFETENSORS_H_
