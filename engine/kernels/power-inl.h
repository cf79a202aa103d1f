// Vectorised powers of two and hyperbolic tangents. Kernels that turn scores into weights include
// this file once for each instruction set.
#if defined(TRIPTYCH_ENGINE_KERNELS_POWER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRIPTYCH_ENGINE_KERNELS_POWER_INL_H_
#undef TRIPTYCH_ENGINE_KERNELS_POWER_INL_H_
#else
#define TRIPTYCH_ENGINE_KERNELS_POWER_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace triptych::kernels {
namespace HWY_NAMESPACE {

// Returns 2^x; zero for x < -125, NaN for NaN. `d` is the vector's float32 tag. REQUIRES: no x > 0.
template <class D>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> PowerOfTwo(D d, hwy::HWY_NAMESPACE::Vec<D> x) {
  namespace hn = hwy::HWY_NAMESPACE;
  using FloatVec = hn::Vec<D>;
  // Adding a number this large leaves no fraction: the lowest bits of the sum are the integer
  // nearest to x, plus 127, the bias of an exponent.
  const FloatVec shift = hn::Set(d, 0x1.8p23f + 127);
  const FloatVec shifted = hn::Add(x, shift);
  const FloatVec f = hn::Sub(x, hn::Sub(shifted, shift));  // -1/2 to 1/2
  // Interpolates 2^f at the seven Chebyshev nodes: a relative error of 3e-9, before rounding.
  FloatVec power = hn::Set(d, 1.5461444699e-4f);
  power = hn::MulAdd(power, f, hn::Set(d, 1.3400428178e-3f));
  power = hn::MulAdd(power, f, hn::Set(d, 9.6180566785e-3f));
  power = hn::MulAdd(power, f, hn::Set(d, 5.5503272267e-2f));
  power = hn::MulAdd(power, f, hn::Set(d, 2.4022650922e-1f));
  power = hn::MulAdd(power, f, hn::Set(d, 6.9314720670e-1f));
  power = hn::MulAdd(power, f, hn::Set(d, 1.0f));
  const hn::RebindToUnsigned<D> bits;
  const FloatVec scale = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(bits, shifted)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -125.0f)), hn::Mul(power, scale));
}

// Returns tanh(x); NaN for NaN.
template <class D>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> TanhOf(D d, hwy::HWY_NAMESPACE::Vec<D> x) {
  namespace hn = hwy::HWY_NAMESPACE;
  using FloatVec = hn::Vec<D>;
  constexpr float kTwoLog2E = 2.8853900818f;
  // (1 - e) / (1 + e) with e = exp(-2 |x|) loses digits near zero, where a series has them.
  const FloatVec size = hn::Abs(x), square = hn::Mul(x, x), one = hn::Set(d, 1.0f);
  const FloatVec e = PowerOfTwo(d, hn::Mul(hn::Set(d, -kTwoLog2E), size));
  const FloatVec large = hn::CopySign(hn::Div(hn::Sub(one, e), hn::Add(one, e)), x);
  // Odd terms up to x^9: the next one is below 1e-8 x for |x| < 1/4.
  FloatVec series = hn::Set(d, 62.0f / 2835);
  series = hn::MulAdd(series, square, hn::Set(d, -17.0f / 315));
  series = hn::MulAdd(series, square, hn::Set(d, 2.0f / 15));
  series = hn::MulAdd(series, square, hn::Set(d, -1.0f / 3));
  series = hn::MulAdd(hn::Mul(series, square), x, x);
  return hn::IfThenElse(hn::Lt(size, hn::Set(d, 0.25f)), series, large);
}

}  // namespace HWY_NAMESPACE
}  // namespace triptych::kernels
HWY_AFTER_NAMESPACE();

#endif
