// What a step of training does with gradients.
#ifndef TRIPTYCH_ENGINE_TOOLS_OPTIMIZER_H_
#define TRIPTYCH_ENGINE_TOOLS_OPTIMIZER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace triptych::tools {

// A trained tensor and AdamW's moments, all float32 and of one shape.
struct Parameter {
  std::string name;
  at::Tensor value;
  at::Tensor gradient;
  at::Tensor first_moment;
  at::Tensor second_moment;
};

// The rate of step 0, 1, ..., steps - 1: a line up to `peak`, which step warmup_steps - 1 has, then
// half a cosine that would reach zero at `steps`.
struct LearningRate {
  double peak = 0;
  int64_t warmup_steps = 0;
  int64_t steps = 0;

  double At(int64_t step) const;
};

// Scales the gradients to a norm, of all together, of at most `most`. Returns what the norm was:
// where that is not finite, nothing is scaled.
double ClipGradients(std::vector<Parameter>& parameters, double most);

// Decoupled weight decay on tensors of two dimensions alone, then Adam with bias correction
// (Loshchilov and Hutter 2019, arXiv:1711.05101, algorithm 2).
struct AdamW {
  double beta1 = 0.9;
  double beta2 = 0.99;
  double epsilon = 1e-8;
  double weight_decay = 0.1;

  // Step 0 is the first: moments are zero before it.
  void Step(std::vector<Parameter>& parameters, int64_t step, double learning_rate) const;
};

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_OPTIMIZER_H_
