#include "engine/kernels/limits.h"

#include <gtest/gtest.h>

namespace triptych::kernels::limits_test {
namespace {

TEST(Limits, AreMeasured) {
  ThreadPool pool(2);
  const Limits limits = MeasureLimits(pool);
  for (const double measured : {limits.read_bytes, limits.float32_flops, limits.bfloat16_flops,
                                limits.int8_flops, limits.int4_flops}) {
    EXPECT_GT(measured, 0);
    // More than two cores can do: such a rate means that the compiler removed the measured code.
    EXPECT_LT(measured, 1e13);
  }
}

TEST(Limits, EveryFormatHasAPeak) {
  const Limits limits{
      .read_bytes = 1, .float32_flops = 2, .bfloat16_flops = 3, .int8_flops = 4, .int4_flops = 5};
  EXPECT_EQ(PeakFlops(limits, WeightFormat::kFloat32), 2);
  EXPECT_EQ(PeakFlops(limits, WeightFormat::kBFloat16), 3);
  EXPECT_EQ(PeakFlops(limits, WeightFormat::kInt8), 4);
  EXPECT_EQ(PeakFlops(limits, WeightFormat::kInt4), 5);
}

TEST(Limits, LeastSecondsAreThoseOfTheSlowerLimit) {
  const Limits limits{.read_bytes = 100};
  EXPECT_EQ(LeastSeconds(limits, /*peak=*/10, /*bytes=*/200, /*flops=*/10), 2);
  EXPECT_EQ(LeastSeconds(limits, /*peak=*/10, /*bytes=*/200, /*flops=*/50), 5);
}

}  // namespace
}  // namespace triptych::kernels::limits_test
