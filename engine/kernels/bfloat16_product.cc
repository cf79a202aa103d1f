#include "engine/kernels/packed_product.h"

// Compiled once for each instruction set; the best one is chosen at run time.
#include "engine/kernels/instruction_sets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/bfloat16_product.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/packed_product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace triptych::kernels {
namespace HWY_NAMESPACE {
namespace {

// Multiplies all rows by bfloat16 weights that are first widened to float32, in L1.
void WidenAndMultiply(const Product& p, const Units& units, int64_t end) {
  constexpr int64_t kPairsBytes = Packed(WeightFormat::kBFloat16).panel_bytes();
  constexpr int64_t kWidth = 2 * kPanel;                   // floats of a pair, for all outputs
  HWY_ALIGN float widened[kBytesWidened / sizeof(float)];  // [panels][units][kWidth]
  const FloatTag d;
  const int64_t count = units.end - units.begin;
  float* out = widened;
  for (int64_t panel = 0; panel < end / kVectors; ++panel) {
    const std::byte* pairs = p.weights + (panel * p.units + units.begin) * kPairsBytes;
    for (int64_t unit = 0; unit < count; ++unit, pairs += kPairsBytes, out += kWidth) {
      HWY_UNROLL(8)
      for (int v = 0; v < kVectors; ++v) {
        const std::byte* const some = pairs + v * kLanes * kWordBytes;
        hn::Store(BFloat16::Weights<0>(some), d, out + v * kLanes);
        hn::Store(BFloat16::Weights<1>(some), d, out + kPanel + v * kLanes);
      }
    }
  }
  Product part = p;
  part.weights = reinterpret_cast<const std::byte*>(widened);
  part.units = 2 * count;
  part.first_unit = 2 * units.begin;
  MultiplyRows<Float32>(part, {2 * units.begin, 2 * units.end}, 0, end);
}

ProductKernel BFloat16Kernel() {
#if TRIPTYCH_AVX3_DL
  if (HasBFloat16Products()) return KernelOf<BFloat16Dot>(RoundToPairs);
#endif
  return KernelOf<BFloat16, WidenAndMultiply>(RoundToFloats);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace triptych::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace triptych::kernels {
namespace {
HWY_EXPORT(BFloat16Kernel);
}  // namespace

ProductKernel BFloat16Product() { return HWY_DYNAMIC_DISPATCH(BFloat16Kernel)(); }

}  // namespace triptych::kernels
#endif  // HWY_ONCE
