// Number formats of tensors, weights, caches and products. The choices are independent.
//
// Every function over one of these types is a switch without a default, so that a value added later
// is a compile error in each function that misses it.
#ifndef TRIPTYCH_ENGINE_BASE_FORMATS_H_
#define TRIPTYCH_ENGINE_BASE_FORMATS_H_

#include <cstdint>
#include <string_view>

#include "engine/base/ceil_div.h"
#include "engine/base/names.h"

namespace triptych {

// Format of a checkpoint's tensors, in files and in memory.
enum class TensorFormat { kFloat32, kBFloat16 };

// Integers per group; the last group may have fewer. Each group has a scale in bfloat16, and a
// number is its integer times the scale.
inline constexpr int64_t kQuantizationGroup = 32;

// Weight format of a serving model. Groups of integers run along a product's inputs.
enum class WeightFormat { kFloat32, kBFloat16, kInt8, kInt4 };

// Weight formats of one model. Converts implicitly from one format for all weights.
struct WeightFormats {
  constexpr WeightFormats() = default;
  constexpr WeightFormats(WeightFormat all) : WeightFormats(all, all) {}  // NOLINT: implicit
  constexpr WeightFormats(WeightFormat layers_in, WeightFormat embeddings_in)
      : WeightFormats(layers_in, embeddings_in, layers_in) {}
  constexpr WeightFormats(WeightFormat layers_in, WeightFormat embeddings_in,
                          WeightFormat experts_in)
      : layers(layers_in), embeddings(embeddings_in), experts(experts_in) {}

  WeightFormat layers = WeightFormat::kFloat32;      // besides routed experts
  WeightFormat embeddings = WeightFormat::kFloat32;  // the embedding and the output matrix
  WeightFormat experts = WeightFormat::kFloat32;     // routed experts

  bool operator==(const WeightFormats&) const = default;
};

// Format of a KV cache's rows. Groups of integers run along a row.
enum class CacheFormat { kFloat32, kBFloat16, kInt8, kInt4 };

// Type of the inputs of matrix products. Accumulators are float32, or float64 under kFloat64.
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
    case CacheFormat::kInt4:
      return "int4";
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

// True if weights are integers with a scale for each group.
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

// True if rows are integers with a scale for each group.
constexpr bool IsInteger(CacheFormat format) {
  switch (format) {
    case CacheFormat::kFloat32:
    case CacheFormat::kBFloat16:
      return false;
    case CacheFormat::kInt8:
    case CacheFormat::kInt4:
      return true;
  }
  return false;
}

// Bytes of a weight matrix, scales included.
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

// Bytes of one cache row, scales included. Integers are padded to an even number of bytes.
constexpr int64_t RowBytes(CacheFormat format, int64_t elements) {
  switch (format) {
    case CacheFormat::kFloat32:
      return 4 * elements;
    case CacheFormat::kBFloat16:
      return 2 * elements;
    case CacheFormat::kInt8:
      return 2 * (CeilDiv(elements, int64_t{2}) + CeilDiv(elements, kQuantizationGroup));
    case CacheFormat::kInt4:
      return 2 * (CeilDiv(elements, int64_t{4}) + CeilDiv(elements, kQuantizationGroup));
  }
  return 0;
}

// Numbers of a latent's cache row that this format stores in 8 bits, as two elements each: those of
// its decoupled key in kInt4. Each is rounded to 1 / kWideSteps of what other numbers are.
constexpr int64_t WideNumbers(CacheFormat format, int64_t rope_head_dim) {
  return format == CacheFormat::kInt4 ? rope_head_dim : 0;
}
inline constexpr int64_t kWideSteps = 16;

// Numbers of a cache row that a Hadamard transform mixes before they are rounded: a power of two
// that divides `width`, at most a group. 1: rows are rounded as they are. `width` divides the
// offset and the width of every key and value of a row; for a latent, its rank and 2 d_R.
constexpr int64_t CacheRotation(CacheFormat format, int64_t width) {
  if (format != CacheFormat::kInt4) return 1;
  int64_t rotation = 1;
  while (rotation < kQuantizationGroup && width % (2 * rotation) == 0) rotation *= 2;
  return rotation;
}

// The weight format that holds such tensors without rounding.
constexpr WeightFormat ToWeightFormat(TensorFormat format) {
  switch (format) {
    case TensorFormat::kFloat32:
      return WeightFormat::kFloat32;
    case TensorFormat::kBFloat16:
      return WeightFormat::kBFloat16;
  }
  return {};
}

// Default cache format for weights, or for a checkpoint's tensors.
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

// The format in which to read a checkpoint's tensors, so that weights are rounded only once.
constexpr TensorFormat TensorsFor(const WeightFormats& formats) {
  return formats == WeightFormats(WeightFormat::kBFloat16) ? TensorFormat::kBFloat16
                                                           : TensorFormat::kFloat32;
}

// Default compute type of serving for such tensors.
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
