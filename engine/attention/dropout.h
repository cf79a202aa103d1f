// Dropout (Srivastava et al. 2014) with a generator fast enough for training on a CPU.
#ifndef TRIPTYCH_ENGINE_ATTENTION_DROPOUT_H_
#define TRIPTYCH_ENGINE_ATTENTION_DROPOUT_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace triptych {

// Not thread-safe: each draw advances the generator.
class Dropout {
 public:
  // REQUIRES: 0 <= probability < 1.
  Dropout(double probability, uint64_t seed) : probability_(probability), seed_(seed) {}

  // Zeroes each element of x with the given probability and scales the rest to keep the mean.
  // Differentiable.
  at::Tensor Apply(const at::Tensor& x);

 private:
  double probability_;
  uint64_t seed_;
  uint64_t draws_ = 0;
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_ATTENTION_DROPOUT_H_
