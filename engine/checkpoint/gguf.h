// Reader of the GGUF container: metadata by keys, then tensors, in one file.
// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_GGUF_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_GGUF_H_

#include <cstdint>
#include <filesystem>

#include "engine/base/json.h"
#include "engine/checkpoint/tensors/file_tensors.h"

namespace triptych::checkpoint {

// Whether a path names a GGUF file: it ends in ".gguf", and is no directory.
bool IsGgufFile(const std::filesystem::path& path);

// A file of version 2 or 3, little-endian. The constructor checks the header. Shapes are as in
// safetensors: elements along the last dimension are adjacent.
class GgufFile final : public FileTensors {
 public:
  // Refuses other formats; models in several files; tensors that are not F32, F16, BF16 or Q8_0,
  // that overlap or that lie outside of the file; and a header of more than 64 MiB, 2^21 values or
  // 2^17 tensors. Takes memory in proportion to the header's length. Throws LoadError.
  explicit GgufFile(const std::filesystem::path& path);

  // An object of numbers, truth values, texts and lists of them, by key. A number of single
  // precision is its shortest decimal.
  const Json& metadata() const { return metadata_; }

 private:
  // Checks that tensors lie within the file and apart, and makes their offsets those in the file.
  void PlaceTensors(uint64_t data_begin);

  Json metadata_;
};

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_GGUF_H_
