// Rotary position embedding (Su et al. 2021, arXiv:2104.09864), pairs (2i, 2i+1).
#ifndef TRIPTYCH_ENGINE_ATTENTION_ROTARY_H_
#define TRIPTYCH_ENGINE_ATTENTION_ROTARY_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace triptych {

// Immutable and thread-safe. Undefined when default-constructed.
class Rotary {
 public:
  Rotary() = default;
  // At position p, pair i turns by the angle p * theta^(-2i/dim) / factors[i]; without factors, all
  // are 1. The rotated elements are multiplied by `magnitude`. Acts on tensors of `device`.
  // Elements from `dim` to `width` stay as they are; 0: there are none. REQUIRES: both are even.
  Rotary(int64_t max_positions, int64_t dim, double theta, at::Device device = at::kCPU,
         const std::vector<double>& factors = {}, double magnitude = 1, int64_t width = 0);

  bool defined() const { return cos_.defined(); }

  // x: [..., length, heads, width], positions: [length] int64 -> the same shape, rotated; x itself
  // if this is undefined. Differentiable; computed in float32 or wider.
  at::Tensor Apply(const at::Tensor& x, const at::Tensor& positions) const;

  // Table for kernels: the cosines of each position's angles, then their sines, times magnitude.
  //   returns [max_positions, 2, width / 2] float32 in host memory; undefined if this is undefined
  at::Tensor Table() const;

 private:
  // Times magnitude, 1 and 0 for elements that stay: [max_positions, width / 2] float64.
  at::Tensor cos_;
  at::Tensor sin_;
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_ATTENTION_ROTARY_H_
