#include "engine/kernels/threads.h"

#include <ATen/Parallel.h>

// There if LibTorch's BLAS is OpenBLAS, whose threads LibTorch does not know of.
extern "C" void openblas_set_num_threads(int threads) __attribute__((weak));

namespace triptych {

void SetComputeThreads(int threads) {
  at::set_num_threads(threads);
  if (openblas_set_num_threads != nullptr) openblas_set_num_threads(threads);
}

}  // namespace triptych
