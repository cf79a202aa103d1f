// A linear layer as stored: y = W x + b.
#ifndef TRIPTYCH_ENGINE_ATTENTION_LINEAR_H_
#define TRIPTYCH_ENGINE_ATTENTION_LINEAR_H_

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "engine/kernels/packed_linear.h"

namespace triptych {

struct Linear {
  at::Tensor weight;  // [out, in]
  at::Tensor bias;    // [out], or undefined

  bool defined() const { return weight.defined(); }

  // x: [..., in] -> [..., out]. Computes in x's dtype; a weight of another dtype is cast, and the
  // cast is differentiable.
  at::Tensor operator()(const at::Tensor& x) const {
    const at::Tensor cast = weight.to(x.scalar_type());
    return bias.defined() ? at::linear(x, cast, bias.to(x.scalar_type())) : at::linear(x, cast);
  }
};

// Whether layers of such weights serve on kernels, float32 and bfloat16 in the CPU's memory, or on
// LibTorch's operations.
inline bool ServesOnKernels(const at::Tensor& weight) {
  return weight.is_cpu() &&
         (weight.scalar_type() == at::kFloat || weight.scalar_type() == at::kBFloat16);
}

// Calls run with the elements of a contiguous float32 or bfloat16 tensor, the latter as their bits.
template <typename Run>
auto WithElements(const at::Tensor& tensor, const Run& run) {
  if (tensor.scalar_type() == at::kFloat) return run(tensor.data_ptr<float>());
  return run(reinterpret_cast<uint16_t*>(tensor.data_ptr<at::BFloat16>()));
}

// For serving: linear layers that read the same input as one, whose outputs follow one another.
// Weights are all float32 or all bfloat16; those not defined are left out.
PackedLinear Pack(const std::vector<Linear>& layers);

// For serving: a product per head.
//   weight: [heads, out, in] float32 or bfloat16
PackedLinear PackHeads(const at::Tensor& weight);

// For serving: a tensor's elements in float32; none if it is undefined.
std::vector<float> ToFloats(const at::Tensor& tensor);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_ATTENTION_LINEAR_H_
