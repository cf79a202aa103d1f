// Conversion of IEEE 754 half precision, held as its bits.
#ifndef TRIPTYCH_ENGINE_BASE_FLOAT16_H_
#define TRIPTYCH_ENGINE_BASE_FLOAT16_H_

#include <bit>
#include <cstdint>

namespace triptych {

// Widens a float16 exactly.
constexpr float FromFloat16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = bits >> 10 & 0x1f;
  const uint32_t fraction = bits & 0x3ff;
  if (exponent == 0) {  // a multiple of 2^-24
    const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  const uint32_t wide = exponent == 0x1f ? 0xff : exponent + 127 - 15;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BASE_FLOAT16_H_
