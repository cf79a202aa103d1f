// One matrix that another program quantized: its parts, and its numbers.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_QUANTIZED_MATRIX_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_QUANTIZED_MATRIX_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/checkpoint/config/published_quantization.h"
#include "engine/checkpoint/tensors/tensor_source.h"

namespace triptych::checkpoint {

// A quantized matrix. Scales and zero points lie on a grid of `scale_rows` by `groups`.
struct QuantizedMatrix {
  PublishedQuantization quantization;
  std::string integers, scales, zeros, order;  // names of its tensors; empty: none
  int64_t outputs = 0, inputs = 0;
  int64_t rows = 1, columns = 1;  // of one scale
  int64_t scale_rows = 1, groups = 1;

  int64_t PerWord() const { return 32 / quantization.bits; }
  // Whether words are along the outputs, so that the matrix and its scales are transposed.
  bool Transposed() const {
    return quantization.layout == PublishedQuantization::Layout::kGptq ||
           quantization.layout == PublishedQuantization::Layout::kAwq;
  }
};

// The matrix of a module, by the module's name with a point at its end and the name of the tensor
// with its integers. Throws LoadError as DecodeMatrices.
QuantizedMatrix FindQuantizedMatrix(const TensorSource& source,
                                    const PublishedQuantization& quantization,
                                    const std::string& module, const std::string& integers);

// Fills `numbers` [outputs, inputs]. Throws LoadError. REQUIRES: FindQuantizedMatrix made `matrix`.
void DecodeQuantizedMatrix(const TensorSource& source, const QuantizedMatrix& matrix,
                           std::span<float> numbers);

// All elements of a stored tensor, whose dtype is that of T. REQUIRES: the tensor is there.
template <typename T>
std::vector<T> ReadAllOf(const TensorSource& source, const std::string& tensor) {
  std::vector<T> elements(source.Find(tensor)->bytes / sizeof(T));
  source.Read(tensor, std::as_writable_bytes(std::span(elements)));
  return elements;
}

// The elements of a stored tensor in F32, F16 or BF16.
std::vector<float> ReadFloats(const TensorSource& source, const std::string& tensor);

// The elements of a stored tensor in I32 or I64.
std::vector<int64_t> ReadIntegers(const TensorSource& source, const std::string& tensor);

// "FILE: tensor NAME ", for messages.
std::string WhereIsPart(const TensorSource& source, const std::string& tensor);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_QUANTIZED_MATRIX_H_
