// Decoder of Q8_0, blocks of integers in GGUF files.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_Q80_BLOCKS_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_Q80_BLOCKS_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace triptych::checkpoint {

// The dtype of tensors in blocks of 32 numbers: a scale in float16, then an int8 for each.
inline constexpr const char* kQ80 = "Q8_0";
inline constexpr int64_t kQ80Numbers = 32;
inline constexpr int64_t kQ80Bytes = 34;

// The numbers of blocks. REQUIRES: kQ80Bytes for every kQ80Numbers.
void DecodeQ80(std::span<const std::byte> blocks, std::span<float> numbers);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_Q80_BLOCKS_H_
