// Root mean square layer normalisation (Zhang and Sennrich 2019, arXiv:1910.07467).
#ifndef TRIPTYCH_ENGINE_ATTENTION_RMS_NORM_H_
#define TRIPTYCH_ENGINE_ATTENTION_RMS_NORM_H_

#include <ATen/core/Tensor.h>

namespace triptych {

// x: [..., width], weight: [width] -> x / sqrt(mean(x^2) + eps) * weight, in x's dtype; computed
// in float32 or wider.
inline at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor wide = x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
  const at::Tensor scaled = wide.mul(wide.square().mean(-1, true).add(eps).rsqrt());
  return scaled.mul(weight.to(wide.scalar_type())).to(x.scalar_type());
}

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_ATTENTION_RMS_NORM_H_
