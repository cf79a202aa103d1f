// Base class of formats that hold all tensors in one file.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_FILE_TENSORS_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_FILE_TENSORS_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/base/file.h"
#include "engine/checkpoint/tensors/tensor_source.h"

namespace triptych::checkpoint {

// A derived class reads the header in its constructor, and adds the entries. Tensors are read by
// Read: a file that has changed since gives wrong numbers or LoadError, and nothing worse.
class FileTensors : public TensorSource {
 public:
  const std::string& name() const final { return file_.name(); }
  std::vector<std::string> TensorNames() const final;
  const StoredTensor* Find(const std::string& tensor) const final;
  void ReadPart(const std::string& tensor, uint64_t begin, std::span<std::byte> bytes) const final;

 protected:
  struct Entry : StoredTensor {
    uint64_t begin = 0;  // in the file
  };

  // Throws LoadError.
  explicit FileTensors(const std::filesystem::path& path) : file_(path) {}

  const InputFile& file() const { return file_; }
  std::map<std::string, Entry>& entries() { return entries_; }

 private:
  InputFile file_;
  std::map<std::string, Entry> entries_;
};

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_FILE_TENSORS_H_
