// Reader of the header of one GGUF file.
// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_GGUF_HEADER_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_GGUF_HEADER_H_

#include <cstdint>
#include <map>
#include <string>

#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/checkpoint/tensors/tensor_source.h"

namespace triptych::checkpoint {

inline constexpr uint64_t kMaxGgufTensors = uint64_t{1} << 17;

struct GgufTensor : StoredTensor {
  uint64_t begin = 0;  // in the file
};

struct GgufHeader {
  // An object of numbers, truth values, texts and lists of them, by key. A number of single
  // precision is its shortest decimal.
  Json metadata;
  std::map<std::string, GgufTensor> tensors;  // inside the file and apart
};

// Reads a file of version 2 or 3, little-endian. Refuses other formats; tensors of types other than
// F32, F16, BF16 and BlockFormats(), that overlap or that lie outside of the file; and a header of
// more than 64 MiB, 2^21 values or kMaxGgufTensors tensors. Takes memory in proportion to the
// header's length. Throws LoadError.
GgufHeader ReadGgufHeader(const InputFile& file);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_GGUF_HEADER_H_
