// Learning rate, gradient clipping and AdamW.
#ifndef TRIPTYCH_ENGINE_TOOLS_OPTIMIZER_H_
#define TRIPTYCH_ENGINE_TOOLS_OPTIMIZER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace triptych::tools {

// A trained tensor with its gradient and AdamW's moments, all float32 of the same shape.
struct Parameter {
  std::string name;
  at::Tensor value;
  at::Tensor gradient;
  at::Tensor first_moment;
  at::Tensor second_moment;
};

// Learning rate of steps 0 to steps - 1: linear up to `peak` at step warmup_steps - 1, then half a
// cosine that reaches zero at `steps`.
struct LearningRate {
  double peak = 0;
  int64_t warmup_steps = 0;
  int64_t steps = 0;

  double At(int64_t step) const;
};

// Scales all gradients so that their joint norm is at most `most`. Returns the norm before. Does
// not scale if that is not finite.
double ClipGradients(std::vector<Parameter>& parameters, double most);

// Adam with bias correction and decoupled weight decay (Loshchilov and Hutter 2019,
// arXiv:1711.05101, algorithm 2). Only tensors of two or more dimensions decay.
struct AdamW {
  double beta1 = 0.9;
  double beta2 = 0.99;
  double epsilon = 1e-8;
  double weight_decay = 0.1;

  // The first step is 0. REQUIRES: moments of zero before it.
  void Step(std::vector<Parameter>& parameters, int64_t step, double learning_rate) const;
};

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_OPTIMIZER_H_
