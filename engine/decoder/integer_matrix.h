// Matrices as tensors of integers and scales.
#ifndef TRIPTYCH_ENGINE_DECODER_INTEGER_MATRIX_H_
#define TRIPTYCH_ENGINE_DECODER_INTEGER_MATRIX_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "engine/base/formats.h"

namespace triptych {

// As checkpoint::IntegerRowOf lays out each row.
struct IntegerMatrix {
  at::Tensor integers;  // [outputs, elements of a row]
  at::Tensor scales;    // [outputs, groups] bfloat16
};

// The type of `integers`. REQUIRES: a format of integers.
at::ScalarType IntegerType(WeightFormat format);

// Rounds a matrix to integers.
//   weight: [outputs, inputs], finite
IntegerMatrix ToIntegers(const at::Tensor& weight, WeightFormat format);

// The numbers that the integers stand for: [outputs, inputs] float32.
at::Tensor ToNumbers(const IntegerMatrix& matrix, int64_t inputs, WeightFormat format);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_DECODER_INTEGER_MATRIX_H_
