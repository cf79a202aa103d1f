// Element types of weights and cache rows: float32, bfloat16 as its bits, and, in caches, int8 with
// a scale. Only this file maps a format to a type.
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

// Whether elements of this type have a scale.
template <typename Element>
inline constexpr bool kHasScale = std::same_as<std::remove_const_t<Element>, int8_t>;

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
  }
}

}  // namespace triptych::kernels

#endif  // TRIPTYCH_ENGINE_KERNELS_ELEMENTS_H_
