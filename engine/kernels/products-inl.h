// Sums of products of pairs, by the instructions of each set. Every kernel includes this file once
// for each instruction set.
#if defined(TRIPTYCH_ENGINE_KERNELS_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRIPTYCH_ENGINE_KERNELS_PRODUCTS_INL_H_
#undef TRIPTYCH_ENGINE_KERNELS_PRODUCTS_INL_H_
#else
#define TRIPTYCH_ENGINE_KERNELS_PRODUCTS_INL_H_
#endif

#include <hwy/highway.h>

// Whether the set may have products of bfloat16 (limits.h: HasBFloat16Products).
#undef TRIPTYCH_AVX3_DL
#if HWY_ARCH_X86_64 && HWY_TARGET <= HWY_AVX3_DL
#define TRIPTYCH_AVX3_DL 1
#else
#define TRIPTYCH_AVX3_DL 0
#endif
// Whether one instruction adds both products of a pair of 16-bit integers.
#undef TRIPTYCH_ADDS_PAIRS
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#define TRIPTYCH_ADDS_PAIRS 1
#else
#define TRIPTYCH_ADDS_PAIRS 0
#endif

HWY_BEFORE_NAMESPACE();
namespace triptych {
namespace HWY_NAMESPACE {

#if TRIPTYCH_AVX3_DL
// Adds the products of pairs of bfloat16. Not every processor of these sets has the instruction, so
// the compiler must not know it.
template <class Sum, class Pairs>
HWY_INLINE Sum AddBFloat16Products(Sum sum, Pairs a, Pairs b) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
  return sum;
}
#endif

#if TRIPTYCH_ADDS_PAIRS
// Adds the products of pairs of 16-bit integers to 32-bit ones.
template <class Sum, class Pairs>
HWY_INLINE Sum AddIntegerProducts(Sum sum, Pairs a, Pairs b) {
#if TRIPTYCH_AVX3_DL
  asm("vpdpwssd %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
  return sum;
#elif HWY_TARGET == HWY_AVX2
  // In this order: where compilers choose it, products take the place of sums in registers.
  Sum products;
  asm("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0"
      : "+v"(sum.raw), "=&v"(products.raw)
      : "v"(a.raw), "v"(b.raw));
  return sum;
#else
  Sum unused = sum;  // by these sets
  return hwy::HWY_NAMESPACE::ReorderWidenMulAccumulate(hwy::HWY_NAMESPACE::DFromV<Sum>(), a, b, sum,
                                                       unused);
#endif
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace triptych
HWY_AFTER_NAMESPACE();

#endif
