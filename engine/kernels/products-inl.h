// Multiply-add primitives of each instruction set. Every kernel includes this file once for each
// instruction set.
#if defined(TRIPTYCH_ENGINE_KERNELS_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRIPTYCH_ENGINE_KERNELS_PRODUCTS_INL_H_
#undef TRIPTYCH_ENGINE_KERNELS_PRODUCTS_INL_H_
#else
#define TRIPTYCH_ENGINE_KERNELS_PRODUCTS_INL_H_
#endif

#include <hwy/highway.h>

// Whether the set adds products of four bytes at once, and its processors may multiply pairs of
// bfloat16 (engine/base/bfloat16.h: HasBFloat16Products).
#undef TRIPTYCH_AVX3_DL
#if HWY_ARCH_X86_64 && HWY_TARGET <= HWY_AVX3_DL
#define TRIPTYCH_AVX3_DL 1
#else
#define TRIPTYCH_AVX3_DL 0
#endif
// Whether some processors of the set add products of four bytes at once, and others do not
// (instruction_sets.h: HasByteProducts).
#undef TRIPTYCH_SOME_ADD_BYTES
#if HWY_ARCH_X86_64 && HWY_TARGET == HWY_AVX3
#define TRIPTYCH_SOME_ADD_BYTES 1
#else
#define TRIPTYCH_SOME_ADD_BYTES 0
#endif
// Whether the set, or some of its processors, adds products of four bytes at once; and whether
// kernels of its other processors add those of two, which fit in 16 bits for int4 weights.
#undef TRIPTYCH_ADDS_QUADS
#undef TRIPTYCH_ADDS_BYTE_PAIRS
#if TRIPTYCH_AVX3_DL || TRIPTYCH_SOME_ADD_BYTES
#define TRIPTYCH_ADDS_QUADS 1
#else
#define TRIPTYCH_ADDS_QUADS 0
#endif
#if TRIPTYCH_SOME_ADD_BYTES || HWY_TARGET == HWY_AVX2
#define TRIPTYCH_ADDS_BYTE_PAIRS 1
#else
#define TRIPTYCH_ADDS_BYTE_PAIRS 0
#endif
// Whether one instruction multiplies pairs of 16-bit integers and adds both products.
#undef TRIPTYCH_ADDS_PAIRS
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#define TRIPTYCH_ADDS_PAIRS 1
#else
#define TRIPTYCH_ADDS_PAIRS 0
#endif

HWY_BEFORE_NAMESPACE();
namespace triptych::kernels {
namespace HWY_NAMESPACE {

// Calls add(r, c, row(r), column(c)) for all of kRows rows and kColumns columns. The smaller
// operand is held in registers, besides the accumulators.
template <int kRows, int kColumns, class Row, class Column, class Add>
HWY_INLINE void ForEachProduct(const Row& row, const Column& column, const Add& add) {
  if constexpr (kRows < kColumns) {
    decltype(row(0)) held[kRows];
    HWY_UNROLL(32)
    for (int r = 0; r < kRows; ++r) held[r] = row(r);
    HWY_UNROLL(32)
    for (int c = 0; c < kColumns; ++c) {
      const auto y = column(c);
      HWY_UNROLL(32)
      for (int r = 0; r < kRows; ++r) add(r, c, held[r], y);
    }
  } else {
    decltype(column(0)) held[kColumns];
    HWY_UNROLL(32)
    for (int c = 0; c < kColumns; ++c) held[c] = column(c);
    HWY_UNROLL(32)
    for (int r = 0; r < kRows; ++r) {
      const auto x = row(r);
      HWY_UNROLL(32)
      for (int c = 0; c < kColumns; ++c) add(r, c, x, held[c]);
    }
  }
}

#if TRIPTYCH_AVX3_DL
// Adds the products of pairs of bfloat16. Inline assembly, because not every processor of these
// sets has the instruction and the compiler must not emit it.
template <class Sum, class Pairs>
HWY_INLINE Sum AddBFloat16Products(Sum sum, Pairs a, Pairs b) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
  return sum;
}
#endif

#if TRIPTYCH_ADDS_QUADS
// Adds the products of four bytes, of which those of a are unsigned, to 32-bit integers. Inline
// assembly, because not every processor of AVX3 has the instruction.
template <class Sum, class Bytes>
HWY_INLINE Sum AddByteProducts(Sum sum, Bytes a, Bytes b) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
  return sum;
}
#endif

#if TRIPTYCH_ADDS_BYTE_PAIRS
// Adds the products of pairs of bytes, of which those of a are unsigned, to 16-bit integers, which
// wrap: at most eight times if a has 4 bits. Inline assembly, because compilers add in the
// product's register and then move the sum.
template <class Sum, class Bytes>
HWY_INLINE Sum AddBytePairProducts(Sum sum, Bytes a, Bytes b) {
  Sum products;
  asm("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0"
      : "+v"(sum.raw), "=&v"(products.raw)
      : "v"(a.raw), "v"(b.raw));
  return sum;
}
#endif

#if TRIPTYCH_ADDS_PAIRS
// Adds the products of pairs of 16-bit integers to 32-bit ones.
template <class Sum, class Pairs>
HWY_INLINE Sum AddPairProducts(Sum sum, Pairs a, Pairs b) {
#if HWY_TARGET == HWY_AVX2
  Sum products;  // inline assembly for the same reason
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
}  // namespace triptych::kernels
HWY_AFTER_NAMESPACE();

#endif
