// Element types of weights and cache rows: float32, bfloat16 as its bits, and, in caches, int8 and
// int4 with a scale. Only this file maps a format to a type.
#ifndef TRIPTYCH_ENGINE_KERNELS_ELEMENTS_H_
#define TRIPTYCH_ENGINE_KERNELS_ELEMENTS_H_

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "engine/base/bfloat16.h"
#include "engine/base/formats.h"

namespace triptych::kernels {

// The element nearest to a value.
template <std::same_as<float> Element>
constexpr Element FromFloat(float value) {
  return value;
}
template <std::same_as<uint16_t> Element>
constexpr Element FromFloat(float value) {
  return ToBFloat16(value);
}

// The value of an element.
constexpr float ToFloat(float element) { return element; }
constexpr float ToFloat(uint16_t element) { return FromBFloat16(element); }

// Two int4, of two positions: the first in the low bits.
struct Int4Pair {
  uint8_t bits;
};
static_assert(sizeof(Int4Pair) == 1);

// Numbers in one element of this type.
template <typename Element>
inline constexpr int64_t kNumbers = std::same_as<std::remove_const_t<Element>, Int4Pair> ? 2 : 1;

// Whether elements of this type have a scale; and their largest integer.
template <typename Element>
inline constexpr bool kHasScale =
    std::same_as<std::remove_const_t<Element>, int8_t> || kNumbers<Element> == 2;
template <typename Element>
inline constexpr float kLargestInteger = kNumbers<Element> == 2 ? 7 : 127;

// Calls visit with a pointer to the elements of this format.
template <typename Visit>
void VisitElements(TensorFormat format, const void* elements, const Visit& visit) {
  switch (format) {
    case TensorFormat::kFloat32:
      return visit(static_cast<const float*>(elements));
    case TensorFormat::kBFloat16:
      return visit(static_cast<const uint16_t*>(elements));
  }
}
template <typename Visit>
void VisitElements(CacheFormat format, void* elements, const Visit& visit) {
  switch (format) {
    case CacheFormat::kFloat32:
      return visit(static_cast<float*>(elements));
    case CacheFormat::kBFloat16:
      return visit(static_cast<uint16_t*>(elements));
    case CacheFormat::kInt8:
      return visit(static_cast<int8_t*>(elements));
    case CacheFormat::kInt4:
      return visit(static_cast<Int4Pair*>(elements));
  }
}

}  // namespace triptych::kernels

#endif  // TRIPTYCH_ENGINE_KERNELS_ELEMENTS_H_
