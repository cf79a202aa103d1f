// The GGUF container: metadata by keys, then tensors, in one file. Torch-free.
// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_GGUF_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_GGUF_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "engine/base/json.h"
#include "engine/checkpoint/tensors/file_tensors.h"

namespace triptych::checkpoint {

// The dtype of tensors in blocks of 32 numbers: a scale in float16, then an int8 for each.
inline constexpr const char* kQ80 = "Q8_0";
inline constexpr int64_t kQ80Numbers = 32;
inline constexpr int64_t kQ80Bytes = 34;

// The numbers that blocks stand for. REQUIRES: kQ80Bytes for every kQ80Numbers.
void DecodeQ80(std::span<const std::byte> blocks, std::span<float> numbers);

// Whether a path names such a file: it ends in ".gguf", and is no directory.
bool IsGgufFile(const std::filesystem::path& path);

// A file of version 2 or 3, little-endian, whose header was checked when it was opened. Shapes are
// as in safetensors: the last extent is of neighbours.
class GgufFile final : public FileTensors {
 public:
  // Refuses what is not of the format, is split into several files, has tensors that are not F32,
  // F16, BF16 or Q8_0, that overlap or lie outside of the file; and more than 64 MiB, 2^21 values
  // or 2^17 tensors in the header, which is read in memory that grows as its length. Throws
  // LoadError.
  explicit GgufFile(const std::filesystem::path& path);

  // An object: a number, a truth value, a text, or a list of one of these, by key. Numbers of
  // single precision are the shortest decimal ones that stand for them.
  const Json& metadata() const { return metadata_; }

 private:
  // Checks that tensors lie within the file and apart, and makes their offsets those in the file.
  void PlaceTensors(uint64_t data_begin);

  Json metadata_;
};

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_GGUF_H_
