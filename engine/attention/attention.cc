#include "engine/attention/attention.h"

#include <ATen/ATen.h>

namespace triptych {
namespace {

// Rounds to int8 with one scale per group, as WritePagedRows does.
at::Tensor AsIntegers(const at::Tensor& rows) {
  const int64_t width = rows.size(-1);
  const int64_t padding = -width & (kQuantizationGroup - 1);
  const at::Tensor groups = at::constant_pad_nd(rows.to(at::kFloat), {0, padding})
                                .unflatten(-1, {-1, kQuantizationGroup});
  const at::Tensor largest = groups.abs().amax(-1, /*keepdim=*/true);
  const at::Tensor scale = at::where(largest < 0x1p-100, at::zeros_like(largest),
                                     (largest / 127).to(at::kBFloat16).to(at::kFloat));
  const at::Tensor inverse = at::where(scale > 0, 1 / scale, at::zeros_like(scale));
  const at::Tensor integers = (groups * inverse).round().clamp(-127, 127);
  return (integers * scale).flatten(-2).narrow(-1, 0, width).to(rows.scalar_type());
}

}  // namespace

at::Tensor AsCached(const at::Tensor& rows, CacheFormat format) {
  switch (format) {
    case CacheFormat::kFloat32:
      return rows;
    case CacheFormat::kBFloat16:
      return rows.to(at::kBFloat16).to(rows.scalar_type());
    case CacheFormat::kInt8:
      return AsIntegers(rows);
  }
  return {};
}

}  // namespace triptych
