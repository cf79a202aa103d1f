// Formats of GGUF's tensors that hold numbers in blocks of integers, and their decoders.
// Layouts: https://github.com/ggml-org/llama.cpp/blob/master/ggml/src/ggml-common.h
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_BLOCK_FORMATS_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_BLOCK_FORMATS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace triptych::checkpoint {

// One format. A row consists of whole blocks.
struct BlockFormat {
  const char* name;  // the dtype of stored tensors: "Q4_K"
  uint32_t type;     // the number of the type in GGUF files
  int64_t numbers;   // in a block
  int64_t bytes;     // of a block
  int bits;          // of a number, without scales
  // Writes the numbers of one block, rounded to float32 at most once each.
  void (*decode)(const std::byte* block, float* numbers);
};

// Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, IQ4_NL and IQ4_XS.
std::span<const BlockFormat> BlockFormats();

// The format with this name; null if there is none.
const BlockFormat* FindBlockFormat(std::string_view name);

// The numbers of blocks. REQUIRES: format.bytes for every format.numbers.
void DecodeBlocks(const BlockFormat& format, std::span<const std::byte> blocks,
                  std::span<float> numbers);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_BLOCK_FORMATS_H_
