// Hadamard transform of short blocks.
#ifndef TRIPTYCH_ENGINE_KERNELS_HADAMARD_H_
#define TRIPTYCH_ENGINE_KERNELS_HADAMARD_H_

#include <cstdint>

namespace triptych::kernels {

// Multiplies each block of `size` numbers by the Hadamard matrix H, in place. H has the entries 1
// and -1, and H H = size. The order of additions is fixed. REQUIRES: `size` is a power of two and
// divides `count`.
inline void Hadamard(float* x, int64_t count, int64_t size) {
  for (int64_t half = 1; half < size; half *= 2) {
    for (int64_t begin = 0; begin < count; begin += 2 * half) {
      for (int64_t i = begin; i < begin + half; ++i) {
        const float a = x[i], b = x[i + half];
        x[i] = a + b;
        x[i + half] = a - b;
      }
    }
  }
}

}  // namespace triptych::kernels

#endif  // TRIPTYCH_ENGINE_KERNELS_HADAMARD_H_
