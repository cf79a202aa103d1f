#include "engine/decoder/compute_threads.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

namespace triptych {

void SetComputeThreads(int threads) {
  at::set_num_threads(threads);
  // The symbol exists if LibTorch's BLAS is OpenBLAS, whose threads LibTorch does not manage.
  using SetThreads = void (*)(int);
  static const auto set_blas_threads =
      reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "openblas_set_num_threads"));
  if (set_blas_threads != nullptr) set_blas_threads(threads);
}

void RunOnComputeThreads(int64_t count, const std::function<void(int64_t)>& run) {
  const int threads = at::get_num_threads();
  std::atomic<int64_t> next = 0;
  std::vector<std::exception_ptr> failures(count);
  const auto work = [&] {
    SetComputeThreads(1);
    for (int64_t i = next++; i < count; i = next++) {
      try {
        run(i);
      } catch (...) {
        failures[i] = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> running;
    for (int64_t i = 0; i < std::min<int64_t>(threads, count); ++i) running.emplace_back(work);
  }
  SetComputeThreads(threads);  // also of the BLAS library, which the workers share
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace triptych
