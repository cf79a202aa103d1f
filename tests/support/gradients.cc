#include "tests/support/gradients.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>

namespace triptych {

void ExpectGradients(const std::vector<at::Tensor>& leaves,
                     const std::function<at::Tensor()>& loss) {
  for (const at::Tensor& leaf : leaves) leaf.requires_grad_(true);
  loss().backward();
  // The difference quotient is off by step^2 times a third derivative, and by rounding over step:
  // about 1e-10 in all.
  constexpr double kStep = 1e-5;
  constexpr double kTolerance = 1e-7;
  for (size_t n = 0; n < leaves.size(); ++n) {
    const at::Tensor gradient = leaves[n].grad();
    ASSERT_TRUE(gradient.defined()) << "leaf " << n;
    const at::NoGradGuard no_grad;
    const at::Tensor flat = leaves[n].detach().view(-1);  // shares memory
    const at::Tensor flat_gradient = gradient.reshape(-1);
    for (int64_t i = 0; i < flat.numel(); ++i) {
      auto& element = flat.data_ptr<double>()[i];
      const double value = element;
      element = value + kStep;
      const double above = loss().item<double>();
      element = value - kStep;
      const double below = loss().item<double>();
      element = value;
      const double quotient = (above - below) / (2 * kStep);
      const double derivative = flat_gradient[i].item<double>();
      ASSERT_NEAR(derivative, quotient, kTolerance * (1 + std::abs(quotient)))
          << "leaf " << n << ", element " << i;
    }
  }
}

}  // namespace triptych
