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

// Rounds to integers of at most `most` with one scale per group, as WritePagedRows does; the first
// `halves` elements to 1 / kWideSteps of such integers.
at::Tensor AsIntegers(const at::Tensor& rows, double most, int64_t halves = 0) {
  const int64_t width = rows.size(-1);
  const int64_t padding = -width & (kQuantizationGroup - 1);
  const at::Tensor groups = at::constant_pad_nd(rows.to(at::kFloat), {0, padding})
                                .unflatten(-1, {-1, kQuantizationGroup});
  const at::Tensor largest = groups.abs().amax(-1, /*keepdim=*/true);
  const at::Tensor scale = at::where(largest < 0x1p-100, at::zeros_like(largest),
                                     (largest / most).to(at::kBFloat16).to(at::kFloat));
  const at::Tensor inverse = at::where(scale > 0, 1 / scale, at::zeros_like(scale));
  at::Tensor steps = at::ones({width + padding}, groups.options());
  steps.narrow(0, 0, halves).fill_(kWideSteps);
  steps = steps.view({-1, kQuantizationGroup});
  const at::Tensor integers = (groups * inverse * steps).round() / steps;
  return (integers.clamp(-most, most) * scale)
      .flatten(-2)
      .narrow(-1, 0, width)
      .to(rows.scalar_type());
}

}  // namespace

at::Tensor AsCached(const at::Tensor& rows, CacheFormat format, int64_t width, int64_t wide) {
  switch (format) {
    case CacheFormat::kFloat32:
      return rows;
    case CacheFormat::kBFloat16:
      return rows.to(at::kBFloat16).to(rows.scalar_type());
    case CacheFormat::kInt8:
      return AsIntegers(rows, 127);
    case CacheFormat::kInt4: {
      // Wide numbers are stored first, each as two elements, which here are equal.
      const int64_t rotation = CacheRotation(format, width), others = rows.size(-1) - wide;
      const at::Tensor numbers = rows.to(at::kFloat);
      const at::Tensor twice = numbers.narrow(-1, others, wide).repeat_interleave(2, -1);
      const at::Tensor rounded = AsIntegers(
          at::cat({twice, Hadamard(numbers.narrow(-1, 0, others), rotation)}, -1), 7, 2 * wide);
      const at::Tensor back = Hadamard(rounded.narrow(-1, 2 * wide, others), rotation) / rotation;
      return at::cat({back, rounded.slice(-1, 0, 2 * wide, 2)}, -1).to(rows.scalar_type());
    }
  }
  return {};
}

}  // namespace triptych
