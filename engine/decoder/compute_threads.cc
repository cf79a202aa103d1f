#include "engine/decoder/compute_threads.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

namespace triptych {

void SetComputeThreads(int threads) {
  at::set_num_threads(threads);
  // There if LibTorch's BLAS is OpenBLAS, whose threads LibTorch does not know of.
  using SetThreads = void (*)(int);
  static const auto set_blas_threads =
      reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "openblas_set_num_threads"));
  if (set_blas_threads != nullptr) set_blas_threads(threads);
}

}  // namespace triptych
