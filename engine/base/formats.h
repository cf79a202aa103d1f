// How numbers are kept: choices that are independent of each other. Torch-free.
//
// Every function over one of these types is a switch without a default: a value that is added is a
// compile error wherever it was forgotten.
#ifndef TRIPTYCH_ENGINE_BASE_FORMATS_H_
#define TRIPTYCH_ENGINE_BASE_FORMATS_H_

#include <cstdint>
#include <string_view>

#include "engine/base/ceil_div.h"
#include "engine/base/names.h"

namespace triptych {

// What the tensors of a checkpoint are, in files and in memory.
enum class TensorFormat { kFloat32, kBFloat16 };

// Integers go in groups of so many, the last of them maybe with fewer, each of which has a scale in
// bfloat16: a number is its integer times that.
inline constexpr int64_t kQuantizationGroup = 32;

// What the weights of a serving model are. Groups of integers lie along a product's inputs.
enum class WeightFormat { kFloat32, kBFloat16, kInt8, kInt4 };

// What the rows of a key/value cache are stored in. Groups of integers lie along a row.
enum class CacheFormat { kFloat32, kBFloat16, kInt8 };

// What is computed in: the inputs of matrix products. Sums are float32, or float64 under kFloat64.
enum class ComputeType { kFloat32, kBFloat16, kFloat64 };

constexpr std::string_view Name(TensorFormat format) {
  switch (format) {
    case TensorFormat::kFloat32:
      return "float32";
    case TensorFormat::kBFloat16:
      return "bfloat16";
  }
  return {};
}

constexpr std::string_view Name(WeightFormat format) {
  switch (format) {
    case WeightFormat::kFloat32:
      return "float32";
    case WeightFormat::kBFloat16:
      return "bfloat16";
    case WeightFormat::kInt8:
      return "int8";
    case WeightFormat::kInt4:
      return "int4";
  }
  return {};
}

constexpr std::string_view Name(CacheFormat format) {
  switch (format) {
    case CacheFormat::kFloat32:
      return "float32";
    case CacheFormat::kBFloat16:
      return "bfloat16";
    case CacheFormat::kInt8:
      return "int8";
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

// Whether weights are integers with a scale for each group.
constexpr bool IsInteger(WeightFormat format) {
  switch (format) {
    case WeightFormat::kFloat32:
    case WeightFormat::kBFloat16:
      return false;
    case WeightFormat::kInt8:
    case WeightFormat::kInt4:
      return true;
  }
  return false;
}

// Bytes of a matrix of weights.
constexpr int64_t WeightBytes(WeightFormat format, int64_t inputs, int64_t outputs) {
  const int64_t groups = outputs * CeilDiv(inputs, kQuantizationGroup);
  switch (format) {
    case WeightFormat::kFloat32:
      return 4 * inputs * outputs;
    case WeightFormat::kBFloat16:
      return 2 * inputs * outputs;
    case WeightFormat::kInt8:
      return groups * (kQuantizationGroup + 2);
    case WeightFormat::kInt4:
      return groups * (kQuantizationGroup / 2 + 2);
  }
  return 0;
}

// Bytes of one cache row of `elements`, of which integers are rounded up to an even number.
constexpr int64_t RowBytes(CacheFormat format, int64_t elements) {
  switch (format) {
    case CacheFormat::kFloat32:
      return 4 * elements;
    case CacheFormat::kBFloat16:
      return 2 * elements;
    case CacheFormat::kInt8:
      return 2 * (CeilDiv(elements, int64_t{2}) + CeilDiv(elements, kQuantizationGroup));
  }
  return 0;
}

// The weights that tensors become without being rounded.
constexpr WeightFormat ToWeightFormat(TensorFormat format) {
  switch (format) {
    case TensorFormat::kFloat32:
      return WeightFormat::kFloat32;
    case TensorFormat::kBFloat16:
      return WeightFormat::kBFloat16;
  }
  return {};
}

// The cache that goes with weights, or with tensors of a checkpoint, unless another is asked for.
constexpr CacheFormat DefaultCacheFormat(WeightFormat format) {
  switch (format) {
    case WeightFormat::kFloat32:
      return CacheFormat::kFloat32;
    case WeightFormat::kBFloat16:
    case WeightFormat::kInt8:
    case WeightFormat::kInt4:
      return CacheFormat::kBFloat16;
  }
  return {};
}
constexpr CacheFormat DefaultCacheFormat(TensorFormat format) {
  return DefaultCacheFormat(ToWeightFormat(format));
}

// What a checkpoint's tensors are read as, for weights that are rounded to a format once.
constexpr TensorFormat TensorsFor(WeightFormat format) {
  return format == WeightFormat::kBFloat16 ? TensorFormat::kBFloat16 : TensorFormat::kFloat32;
}

// What serving computes in with such tensors.
constexpr ComputeType DefaultComputeType(TensorFormat format) {
  switch (format) {
    case TensorFormat::kFloat32:
      return ComputeType::kFloat32;
    case TensorFormat::kBFloat16:
      return ComputeType::kBFloat16;
  }
  return {};
}

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BASE_FORMATS_H_
