// Fixture of tests that need a GPU, or the emulated one.
#ifndef TRIPTYCH_TESTS_BACKEND_CUDA_CUDA_TEST_H_
#define TRIPTYCH_TESTS_BACKEND_CUDA_CUDA_TEST_H_

#include <gtest/gtest.h>

#include "engine/backend/cuda/cuda_backend.h"

namespace triptych {

// True if kernels run on the CPU, where sizes must be small.
#ifdef TRIPTYCH_CUDA_EMULATION
inline constexpr bool kEmulated = true;
#else
inline constexpr bool kEmulated = false;
#endif

class CudaTest : public testing::Test {
 protected:
  void SetUp() override {
    if (CudaDevices().empty()) GTEST_SKIP() << WhyNoCudaDevice();
  }
};

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_BACKEND_CUDA_CUDA_TEST_H_
