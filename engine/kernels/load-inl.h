// Vector loads of float32, bfloat16 (as its bits) and int8, for kernels that compute in float32.
// Every kernel includes this file once for each instruction set.
#if defined(TRIPTYCH_ENGINE_KERNELS_LOAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRIPTYCH_ENGINE_KERNELS_LOAD_INL_H_
#undef TRIPTYCH_ENGINE_KERNELS_LOAD_INL_H_
#else
#define TRIPTYCH_ENGINE_KERNELS_LOAD_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace triptych::kernels {
namespace HWY_NAMESPACE {

// Loads a vector as float32; `d` is its tag.
template <class D>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> LoadFloats(D d, const float* x) {
  return hwy::HWY_NAMESPACE::LoadU(d, x);
}
template <class D>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> LoadFloats(D d, const uint16_t* x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::Rebind<uint16_t, D> narrow;
  const hn::RebindToUnsigned<D> wide;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(wide, hn::LoadU(narrow, x))));
}

template <class D>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> LoadFloats(D d, const int8_t* x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::Rebind<int8_t, D> narrow;
  const hn::RebindToSigned<D> wide;
  return hn::ConvertTo(d, hn::PromoteTo(wide, hn::LoadU(narrow, x)));
}

}  // namespace HWY_NAMESPACE
}  // namespace triptych::kernels
HWY_AFTER_NAMESPACE();

#endif
