#include "engine/kernels/threads.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <memory>
#include <thread>

// There if LibTorch's BLAS is OpenBLAS, whose threads LibTorch does not know of.
extern "C" void openblas_set_num_threads(int threads) __attribute__((weak));

namespace triptych {
namespace {

thread_local int compute_threads = 0;  // 0: not set
thread_local std::unique_ptr<KernelContext> context;

}  // namespace

void SetComputeThreads(int threads) {
  SetServingThreads(threads);
  at::set_num_threads(threads);
  if (openblas_set_num_threads != nullptr) openblas_set_num_threads(threads);
}

void SetServingThreads(int threads) {
  at::set_num_threads(1);
  if (threads != compute_threads) context.reset();
  compute_threads = threads;
}

KernelContext& ComputeContext() {
  if (context == nullptr) {
    const int cpus = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    context = std::make_unique<KernelContext>(compute_threads > 0 ? compute_threads : cpus);
  }
  return *context;
}

}  // namespace triptych
