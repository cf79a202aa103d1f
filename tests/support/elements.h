// Elements as kernels hold them: float32, or bfloat16 as its bits.
#ifndef TRIPTYCH_TESTS_SUPPORT_ELEMENTS_H_
#define TRIPTYCH_TESTS_SUPPORT_ELEMENTS_H_

#include <bit>
#include <cmath>
#include <cstdint>

namespace triptych {

// The nearest bfloat16, ties to even. `value` is finite or NaN.
inline uint16_t ToBFloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return 0x7fc0;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

template <typename Element>
Element FromFloat(float value) {
  if constexpr (sizeof(Element) == sizeof(float)) {
    return value;
  } else {
    return ToBFloat16(value);
  }
}
inline float ToFloat(float element) { return element; }
inline float ToFloat(uint16_t element) {
  return std::bit_cast<float>(static_cast<uint32_t>(element) << 16);
}

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_SUPPORT_ELEMENTS_H_
