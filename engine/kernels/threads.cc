#include "engine/kernels/threads.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <algorithm>
#include <memory>
#include <thread>

namespace triptych {
namespace {

thread_local int compute_threads = 0;  // 0: not set
thread_local std::unique_ptr<ThreadPool> pool;

// LibTorch does not know of the threads of OpenBLAS, if that is its BLAS.
void SetBlasThreads(int threads) {
  static const auto set =
      reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "openblas_set_num_threads"));
  if (set != nullptr) set(threads);
}

}  // namespace

void SetComputeThreads(int threads) {
  SetServingThreads(threads);
  at::set_num_threads(threads);
  SetBlasThreads(threads);
}

void SetServingThreads(int threads) {
  at::set_num_threads(1);
  if (threads != compute_threads) pool.reset();
  compute_threads = threads;
}

ThreadPool& ComputePool() {
  if (pool == nullptr) {
    const int cpus = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    pool = std::make_unique<ThreadPool>(compute_threads > 0 ? compute_threads : cpus);
  }
  return *pool;
}

}  // namespace triptych
