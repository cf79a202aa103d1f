// Threads and scratch memory of kernels.
#ifndef TRIPTYCH_ENGINE_KERNELS_CONTEXT_H_
#define TRIPTYCH_ENGINE_KERNELS_CONTEXT_H_

#include "engine/kernels/thread_pool.h"
#include "engine/kernels/workspace.h"

namespace triptych::kernels {

// Passed to each kernel by the caller that runs a model. For one thread at a time. A kernel
// releases the scratch memory that it takes.
struct KernelContext {
  // `threads` >= 1 counts the thread that calls the kernels.
  explicit KernelContext(int threads) : pool(threads) {}

  ThreadPool pool;
  Workspace workspace;
};

}  // namespace triptych::kernels

#endif  // TRIPTYCH_ENGINE_KERNELS_CONTEXT_H_
