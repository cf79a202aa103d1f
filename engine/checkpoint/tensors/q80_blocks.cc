#include "engine/checkpoint/tensors/q80_blocks.h"

#include <cstring>

#include "engine/base/float16.h"

namespace triptych::checkpoint {

void DecodeQ80(std::span<const std::byte> blocks, std::span<float> numbers) {
  for (size_t at = 0; at < numbers.size(); at += kQ80Numbers) {
    uint16_t scale_bits = 0;
    std::memcpy(&scale_bits, blocks.data(), sizeof(scale_bits));
    const float scale = FromFloat16(scale_bits);
    for (int64_t i = 0; i < kQ80Numbers; ++i) {
      const auto integer = static_cast<int8_t>(blocks[sizeof(scale_bits) + i]);
      numbers[at + i] = scale * static_cast<float>(integer);
    }
    blocks = blocks.subspan(kQ80Bytes);
  }
}

}  // namespace triptych::checkpoint
