#include "engine/tools/optimizer.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace triptych::tools {

double LearningRate::At(int64_t step) const {
  if (step < warmup_steps) {
    return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  }
  const double progress =
      static_cast<double>(step - warmup_steps) / static_cast<double>(steps - warmup_steps);
  return peak * 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

double ClipGradients(std::vector<Parameter>& parameters, double most) {
  const at::NoGradGuard no_grad;
  double squares = 0;
  for (const Parameter& p : parameters) squares += p.gradient.square().sum().item<double>();
  const double norm = std::sqrt(squares);
  if (norm > most && std::isfinite(norm)) {
    for (Parameter& p : parameters) p.gradient.mul_(most / norm);
  }
  return norm;
}

void AdamW::Step(std::vector<Parameter>& parameters, int64_t step, double learning_rate) const {
  const at::NoGradGuard no_grad;
  const double correction1 = 1 - std::pow(beta1, static_cast<double>(step + 1));
  const double correction2 = 1 - std::pow(beta2, static_cast<double>(step + 1));
  for (Parameter& p : parameters) {
    p.first_moment.mul_(beta1).add_(p.gradient, 1 - beta1);
    p.second_moment.mul_(beta2).addcmul_(p.gradient, p.gradient, 1 - beta2);
    if (p.value.dim() > 1) p.value.mul_(1 - learning_rate * weight_decay);
    const at::Tensor denominator = (p.second_moment / correction2).sqrt_().add_(epsilon);
    p.value.addcdiv_(p.first_moment, denominator, -learning_rate / correction1);
  }
}

}  // namespace triptych::tools
