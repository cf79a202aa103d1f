// Rotary position embedding (Su et al. 2021, arXiv:2104.09864), pairs (2i, 2i+1).
#ifndef TRIPTYCH_ENGINE_ATTENTION_ROTARY_H_
#define TRIPTYCH_ENGINE_ATTENTION_ROTARY_H_

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "engine/kernels/rotation.h"

namespace triptych {

// Immutable and thread-safe. Undefined when default-constructed.
class Rotary {
 public:
  Rotary() = default;
  // `dim` is even; angles are p * theta^(-2i/dim). Acts on tensors of `device`.
  Rotary(int64_t max_positions, int64_t dim, double theta, at::Device device = at::kCPU);

  bool defined() const { return cos_.defined(); }

  // x: [..., length, heads, dim], positions: [length] int64 -> the same shape, rotated.
  // Differentiable; computed in float32 or wider.
  at::Tensor Apply(const at::Tensor& x, const at::Tensor& positions) const;

  // For serving on kernels: in place, on the calling thread's ComputeContext(). `where.dim` is this
  // one's.
  void Apply(const RotatedHeads& where, const std::vector<int64_t>& positions, float* x) const;

 private:
  at::Tensor cos_;    // [max_positions, dim / 2] float64
  at::Tensor sin_;    // [max_positions, dim / 2] float64
  at::Tensor table_;  // [max_positions, 2, dim / 2] float32: for kernels
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_ATTENTION_ROTARY_H_
