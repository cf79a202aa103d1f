// Comparison of automatic derivatives with finite differences.
#ifndef TRIPTYCH_TESTS_SUPPORT_GRADIENTS_H_
#define TRIPTYCH_TESTS_SUPPORT_GRADIENTS_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace triptych {

// Expects the derivative of `loss` by every element of `leaves` to equal the central difference.
// REQUIRES: the leaves are contiguous float64; `loss` computes a scalar from their current values.
void ExpectGradients(const std::vector<at::Tensor>& leaves,
                     const std::function<at::Tensor()>& loss);

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_SUPPORT_GRADIENTS_H_
