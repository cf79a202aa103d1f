// A linear layer as stored: y = W x + b.
#ifndef TRIPTYCH_ENGINE_ATTENTION_LINEAR_H_
#define TRIPTYCH_ENGINE_ATTENTION_LINEAR_H_

#include <ATen/ATen.h>

namespace triptych {

struct Linear {
  at::Tensor weight;  // [out, in]
  at::Tensor bias;    // [out], or undefined

  bool defined() const { return weight.defined(); }

  // x: [..., in] -> [..., out]. Computes in x's dtype; a weight of another dtype is cast, and the
  // cast is differentiable.
  at::Tensor operator()(const at::Tensor& x) const {
    return at::linear(
        x, weight.to(x.scalar_type()),
        bias.defined() ? c10::optional<at::Tensor>(bias.to(x.scalar_type())) : c10::nullopt);
  }
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_ATTENTION_LINEAR_H_
