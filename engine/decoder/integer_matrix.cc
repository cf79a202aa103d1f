#include "engine/decoder/integer_matrix.h"

#include <ATen/ATen.h>

#include <cstddef>
#include <span>

#include "engine/checkpoint/tensors/integer_rows.h"

namespace triptych {
namespace {

template <typename T>
std::span<T> RowOf(T* matrix, int64_t row, int64_t width) {
  return {matrix + row * width, static_cast<size_t>(width)};
}

}  // namespace

at::ScalarType IntegerType(WeightFormat format) {
  return format == WeightFormat::kInt8 ? at::kChar : at::kByte;
}

IntegerMatrix ToIntegers(const at::Tensor& weight, WeightFormat format) {
  const at::Tensor rows = weight.to(at::kFloat).contiguous();
  const int64_t outputs = rows.size(0), inputs = rows.size(1);
  const checkpoint::IntegerRow row = checkpoint::IntegerRowOf(format, inputs);
  IntegerMatrix matrix{.integers = at::empty({outputs, row.elements}, IntegerType(format)),
                       .scales = at::empty({outputs, row.scales}, at::kBFloat16)};
  const auto* const floats = rows.data_ptr<float>();
  auto* const integers = static_cast<std::byte*>(matrix.integers.data_ptr());
  auto* const scales = static_cast<uint16_t*>(matrix.scales.data_ptr());
  for (int64_t i = 0; i < outputs; ++i) {
    checkpoint::StoreRow(format, RowOf(floats, i, inputs), RowOf(integers, i, row.elements),
                         RowOf(scales, i, row.scales));
  }
  return matrix;
}

at::Tensor ToNumbers(const IntegerMatrix& matrix, int64_t inputs, WeightFormat format) {
  const int64_t outputs = matrix.integers.size(0);
  const checkpoint::IntegerRow row = checkpoint::IntegerRowOf(format, inputs);
  at::Tensor numbers = at::empty({outputs, inputs}, at::kFloat);
  const auto* const integers = static_cast<const std::byte*>(matrix.integers.data_ptr());
  const auto* const scales = static_cast<const uint16_t*>(matrix.scales.data_ptr());
  auto* const floats = numbers.data_ptr<float>();
  for (int64_t i = 0; i < outputs; ++i) {
    checkpoint::ReadRow(format, RowOf(integers, i, row.elements), RowOf(scales, i, row.scales),
                        RowOf(floats, i, inputs));
  }
  return numbers;
}

}  // namespace triptych
