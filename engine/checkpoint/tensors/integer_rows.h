// Storage of matrices as integers: rows in one tensor, their scales in another.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_INTEGER_ROWS_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_INTEGER_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "engine/base/formats.h"

namespace triptych::checkpoint {

// Layout of a row of `inputs` weights (engine/definitions.md#integer-weights-and-cache-rows): int8
// as I8, an element each; int4 as U8, two elements each, the even one in the low four bits,
// both in two's complement. The scales of its groups are BF16.
struct IntegerRow {
  const char* dtype;  // in safetensors
  int64_t elements;   // of one byte
  int64_t scales;
};
// REQUIRES: a format of integers.
IntegerRow IntegerRowOf(WeightFormat format, int64_t inputs);

// The name of the tensor with the scales of another.
std::string ScalesName(const std::string& tensor);

// Rounds a row to integers.
//   weights: [inputs], finite   integers, scales: of the sizes of IntegerRowOf
void StoreRow(WeightFormat format, std::span<const float> weights, std::span<std::byte> integers,
              std::span<uint16_t> scales);

// The exact weights of what StoreRow has stored.
void ReadRow(WeightFormat format, std::span<const std::byte> integers,
             std::span<const uint16_t> scales, std::span<float> weights);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_INTEGER_ROWS_H_
