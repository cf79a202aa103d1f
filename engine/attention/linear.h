// Linear layer as a checkpoint stores it: y = W x + b.
#ifndef TRIPTYCH_ENGINE_ATTENTION_LINEAR_H_
#define TRIPTYCH_ENGINE_ATTENTION_LINEAR_H_

#include <ATen/core/Tensor.h>
#include <ATen/ops/linear.h>

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

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_ATTENTION_LINEAR_H_
