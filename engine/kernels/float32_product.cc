#include "engine/kernels/packed_product.h"

// Compiled once for each instruction set; the best one is chosen at run time.
#include "engine/kernels/instruction_sets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/float32_product.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/packed_product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace triptych::kernels {
namespace HWY_NAMESPACE {
namespace {

ProductKernel Float32Kernel() { return KernelOf<Float32>(nullptr); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace triptych::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace triptych::kernels {
namespace {
HWY_EXPORT(Float32Kernel);
}  // namespace

ProductKernel Float32Product() { return HWY_DYNAMIC_DISPATCH(Float32Kernel)(); }

}  // namespace triptych::kernels
#endif  // HWY_ONCE
