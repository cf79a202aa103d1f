// Reader and writer of the safetensors container: named tensors behind a JSON header.
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
  // The tensor's place in the data section; end - begin = `bytes`.
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::map<std::string, SafetensorsEntry> entries;
  uint64_t data_begin = 0;  // of the data section in the file
};

// Fills `bytes` from `offset` in a file.
using ReadBytes = std::function<void(uint64_t offset, std::span<std::byte> bytes)>;

// Reads the header of a file of `file_bytes`, which has 8 bytes of the header's length, the header
// as JSON, and the data section. Reads the first two once each. Checks every entry: known dtype, no
// overflow, byte size equal to shape times element size, inside the file, neither overlaps nor
// gaps. Throws LoadError; `source` is the file's name for messages.
SafetensorsHeader ReadSafetensorsHeader(uint64_t file_bytes, const ReadBytes& read,
                                        const std::string& source);

// One file. The constructor checks the header. Tensors are read by Read: a file that has changed
// since gives wrong numbers or LoadError, and nothing worse.
class SafetensorsFile final : public TensorSource {
 public:
  // Throws LoadError.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::map<std::string, SafetensorsEntry>& entries() const { return header_.entries; }
  uint64_t data_begin() const { return header_.data_begin; }

  const std::string& name() const override { return file_.name(); }
  std::vector<std::string> TensorNames() const override;
  const StoredTensor* Find(const std::string& tensor) const override;
  void ReadPart(const std::string& tensor, uint64_t begin,
                std::span<std::byte> bytes) const override;

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

// Writes into `file`, without committing it. Throws std::runtime_error.
void WriteSafetensors(StagedFile& file, const std::vector<SafetensorsTensor>& tensors,
                      const std::map<std::string, std::string>& metadata = {});
// Replaces the file at `path`. Throws std::runtime_error.
void WriteSafetensors(const std::filesystem::path& path,
                      const std::vector<SafetensorsTensor>& tensors,
                      const std::map<std::string, std::string>& metadata = {});

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_SAFETENSORS_H_
