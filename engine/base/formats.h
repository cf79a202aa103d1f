// How numbers are kept: three choices that are independent of each other. Torch-free.
//
// Every function over one of these types is a switch without a default: a value that is added is a
// compile error wherever it was forgotten.
#ifndef TRIPTYCH_ENGINE_BASE_FORMATS_H_
#define TRIPTYCH_ENGINE_BASE_FORMATS_H_

#include <cstdint>
#include <string_view>

#include "engine/base/names.h"

namespace triptych {

// What weights are stored in, in files and in the memory of a serving model.
enum class WeightFormat { kFloat32, kBFloat16 };

// What the rows of a key/value cache are stored in.
enum class CacheFormat { kFloat32, kBFloat16 };

// What is computed in: the inputs of matrix products. Sums are float32, or float64 under kFloat64.
enum class ComputeType { kFloat32, kBFloat16, kFloat64 };

constexpr std::string_view Name(WeightFormat format) {
  switch (format) {
    case WeightFormat::kFloat32:
      return "float32";
    case WeightFormat::kBFloat16:
      return "bfloat16";
  }
  return {};
}

constexpr std::string_view Name(CacheFormat format) {
  switch (format) {
    case CacheFormat::kFloat32:
      return "float32";
    case CacheFormat::kBFloat16:
      return "bfloat16";
  }
  return {};
}

constexpr std::string_view Name(ComputeType type) {
  switch (type) {
    case ComputeType::kFloat32:
      return "float32";
    case ComputeType::kBFloat16:
      return "bfloat16";
    case ComputeType::kFloat64:
      return "float64";
  }
  return {};
}

// Bytes of `elements` weights.
constexpr int64_t WeightBytes(WeightFormat format, int64_t elements) {
  switch (format) {
    case WeightFormat::kFloat32:
      return 4 * elements;
    case WeightFormat::kBFloat16:
      return 2 * elements;
  }
  return 0;
}

// Bytes of one cache row of `elements`.
constexpr int64_t RowBytes(CacheFormat format, int64_t elements) {
  switch (format) {
    case CacheFormat::kFloat32:
      return 4 * elements;
    case CacheFormat::kBFloat16:
      return 2 * elements;
  }
  return 0;
}

// The cache that goes with weights unless another is asked for.
constexpr CacheFormat DefaultCacheFormat(WeightFormat format) {
  switch (format) {
    case WeightFormat::kFloat32:
      return CacheFormat::kFloat32;
    case WeightFormat::kBFloat16:
      return CacheFormat::kBFloat16;
  }
  return {};
}

// What serving computes in with such weights.
constexpr ComputeType DefaultComputeType(WeightFormat format) {
  switch (format) {
    case WeightFormat::kFloat32:
      return ComputeType::kFloat32;
    case WeightFormat::kBFloat16:
      return ComputeType::kBFloat16;
  }
  return {};
}

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BASE_FORMATS_H_
