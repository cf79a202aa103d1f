// Highway's instruction sets, but for those that kernels are not compiled for: included before all
// else of it.
#ifndef TRIPTYCH_ENGINE_KERNELS_INSTRUCTION_SETS_H_
#define TRIPTYCH_ENGINE_KERNELS_INSTRUCTION_SETS_H_

// Sums live in arrays of vectors, which vectors of unknown length do not allow: machines with those
// run the set of fixed length. Hardly any processor stops at SSSE3 or SSE4 (the last were sold in
// 2013): they run SSE2, and their kernels took a quarter of the compiler's time.
#define HWY_DISABLED_TARGETS \
  (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_SSSE3 | HWY_SSE4)
#define HWY_WANT_AVX3_DL  // the first set that may have bfloat16 products

#include <hwy/targets.h>

#endif  // TRIPTYCH_ENGINE_KERNELS_INSTRUCTION_SETS_H_
