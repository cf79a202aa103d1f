// How many threads compute.
#ifndef TRIPTYCH_ENGINE_KERNELS_THREADS_H_
#define TRIPTYCH_ENGINE_KERNELS_THREADS_H_

#include "engine/kernels/thread_pool.h"

namespace triptych {

// Operations that the calling thread starts use this many threads, matrix products of the BLAS
// library (a setting of the whole process) included. `threads` >= 1.
void SetComputeThreads(int threads);

// The same for a thread that serves: LibTorch's operations run on that thread alone, for its
// threads burn their CPUs between operations, which a busy machine does not forgive; ComputePool()
// has `threads`.
void SetServingThreads(int threads);

// The calling thread's own pool, of as many threads as it set; as many as there are CPUs if it set
// none. Made when first asked for, and anew when the number changes.
ThreadPool& ComputePool();

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_KERNELS_THREADS_H_
