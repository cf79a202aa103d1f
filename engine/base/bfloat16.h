// Conversions of bfloat16, held as its bits: the upper half of a float32.
#ifndef TRIPTYCH_ENGINE_BASE_BFLOAT16_H_
#define TRIPTYCH_ENGINE_BASE_BFLOAT16_H_

#include <bit>
#include <cstdint>

namespace triptych {

// The nearest bfloat16, ties to even; every NaN becomes 0x7fc0. The compiler vectorises loops over
// it.
constexpr uint16_t ToBFloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return static_cast<uint16_t>(value != value ? 0x7fc0 : rounded);
}

// Widens a bfloat16 exactly.
constexpr float FromBFloat16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// True if this CPU has instructions that multiply bfloat16 numbers (AVX512-BF16).
inline bool HasBFloat16Products() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16") != 0;
#else
  return false;
#endif
}

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BASE_BFLOAT16_H_
