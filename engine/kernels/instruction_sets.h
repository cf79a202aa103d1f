// The instruction sets that kernels are compiled for. Include before any other header of Highway.
#ifndef TRIPTYCH_ENGINE_KERNELS_INSTRUCTION_SETS_H_
#define TRIPTYCH_ENGINE_KERNELS_INSTRUCTION_SETS_H_

// Accumulators are arrays of vectors, which vectors of unknown length do not allow: machines that
// have those run the set of fixed length. Processors whose best set is SSE4 run SSSE3, which is as
// fast there.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_SSE4)
#define HWY_WANT_AVX3_DL  // the first set whose processors may have bfloat16 products

#include <hwy/targets.h>

namespace triptych::kernels {

// True if this CPU adds products of four bytes at once in vectors of 512 bits (AVX512-VNNI). Every
// processor of AVX3_DL does, and some of AVX3.
inline bool HasByteProducts() {
#if HWY_ARCH_X86_64
  return __builtin_cpu_supports("avx512vnni") != 0;
#else
  return false;
#endif
}

}  // namespace triptych::kernels

#endif  // TRIPTYCH_ENGINE_KERNELS_INSTRUCTION_SETS_H_
