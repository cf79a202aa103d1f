// Layout of matrices that other programs quantized: "quantization_config" in a published model's
// config.json.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_PUBLISHED_QUANTIZATION_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_PUBLISHED_QUANTIZATION_H_

#include <cstdint>
#include <optional>

#include "engine/base/formats.h"
#include "engine/checkpoint/config/json_fields.h"

namespace triptych::checkpoint {

// How a matrix X.weight [outputs, inputs] is stored. A weight is (q - z) * s. Without zero points,
// z is 0.
struct PublishedQuantization {
  // n integers of `bits` fill an I32, the first one in its lowest bits.
  enum class Layout {
    kGptq,    // X.qweight [inputs / n, outputs], X.qzeros, X.scales, X.g_idx
    kAwq,     // X.qweight [inputs, outputs / n], X.qzeros, X.scales; n in the order 0 2 4 6 1 3 5 7
    kPacked,  // X.weight_packed [outputs, inputs / n], X.weight_shape, X.weight_scale
    kIntegers,  // X.weight in I8, X.weight_scale
    kFloat8,    // X.weight in F8_E4M3, X.weight_scale or X.weight_scale_inv
  };
  Layout layout = Layout::kIntegers;
  int bits = 8;             // 4 or 8
  int added_to_zeros = 0;   // kGptq: the stored zero points are less by this
  bool zero_points = true;  // kPacked and kIntegers: X.weight_zero_point is there
  // The weights of one scale: `rows` outputs and `columns` inputs. Absent columns: all inputs; then
  // one scale may also be that of the whole matrix.
  int64_t rows = 1;
  std::optional<int64_t> columns = {};

  // The format in which such matrices are served: the nearest.
  WeightFormat Nearest() const { return bits == 4 ? WeightFormat::kInt4 : WeightFormat::kInt8; }
};

// Takes "quantization_config" of the methods gptq, awq, fp8, fbgemm_fp8 and compressed-tensors;
// absent without the field, or if it is null. Fields about activations, caches, calibration and the
// choice of modules are ignored: the tensors show which modules are quantized. Throws LoadError,
// naming the field.
std::optional<PublishedQuantization> TakePublishedQuantization(JsonFields& fields);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_PUBLISHED_QUANTIZATION_H_
