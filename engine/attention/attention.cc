#include "engine/attention/attention.h"

#include <ATen/ATen.h>

namespace triptych {
namespace {

// Multiplies each `size` elements of rows by a Hadamard matrix.
at::Tensor Hadamard(const at::Tensor& rows, int64_t size) {
  at::Tensor matrix = at::ones({1, 1}, rows.options());
  for (int64_t half = 1; half < size; half *= 2) {
    matrix = at::cat({at::cat({matrix, matrix}, 1), at::cat({matrix, -matrix}, 1)}, 0);
  }
  return at::matmul(rows.unflatten(-1, {-1, size}), matrix).flatten(-2);
}

// Rounds to integers of at most `most` with one scale per group, as WritePagedRows does.
at::Tensor AsIntegers(const at::Tensor& rows, double most) {
  const int64_t width = rows.size(-1);
  const int64_t padding = -width & (kQuantizationGroup - 1);
  const at::Tensor groups = at::constant_pad_nd(rows.to(at::kFloat), {0, padding})
                                .unflatten(-1, {-1, kQuantizationGroup});
  const at::Tensor largest = groups.abs().amax(-1, /*keepdim=*/true);
  const at::Tensor scale = at::where(largest < 0x1p-100, at::zeros_like(largest),
                                     (largest / most).to(at::kBFloat16).to(at::kFloat));
  const at::Tensor inverse = at::where(scale > 0, 1 / scale, at::zeros_like(scale));
  const at::Tensor integers = (groups * inverse).round().clamp(-most, most);
  return (integers * scale).flatten(-2).narrow(-1, 0, width).to(rows.scalar_type());
}

}  // namespace

at::Tensor AsCached(const at::Tensor& rows, CacheFormat format, int64_t width) {
  switch (format) {
    case CacheFormat::kFloat32:
      return rows;
    case CacheFormat::kBFloat16:
      return rows.to(at::kBFloat16).to(rows.scalar_type());
    case CacheFormat::kInt8:
      return AsIntegers(rows, 127);
    case CacheFormat::kInt4: {
      const int64_t rotation = CacheRotation(format, width);
      const at::Tensor rounded = AsIntegers(Hadamard(rows.to(at::kFloat), rotation), 7);
      return (Hadamard(rounded, rotation) / rotation).to(rows.scalar_type());
    }
  }
  return {};
}

}  // namespace triptych
