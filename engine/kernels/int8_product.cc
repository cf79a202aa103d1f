#include "engine/kernels/packed_product.h"

// Compiled once for each instruction set; the best one is chosen at run time.
#include "engine/kernels/instruction_sets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/int8_product.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/packed_product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace triptych::kernels {
namespace HWY_NAMESPACE {
namespace {

ProductKernel Int8Kernel() { return IntegerKernelOf<Int8>(); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace triptych::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace triptych::kernels {
namespace {
HWY_EXPORT(Int8Kernel);
}  // namespace

ProductKernel Int8Product() { return HWY_DYNAMIC_DISPATCH(Int8Kernel)(); }

}  // namespace triptych::kernels
#endif  // HWY_ONCE
