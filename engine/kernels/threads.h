// How many threads compute.
#ifndef TRIPTYCH_ENGINE_KERNELS_THREADS_H_
#define TRIPTYCH_ENGINE_KERNELS_THREADS_H_

#include "engine/kernels/context.h"

namespace triptych {

// Operations that the calling thread starts use this many threads, matrix products of the BLAS
// library (a setting of the whole process) included. `threads` >= 1.
void SetComputeThreads(int threads);

// Kernels that the calling thread runs use this many threads, and LibTorch's operations that thread
// alone: LibTorch's threads burn their CPUs between operations, which a busy machine does not
// forgive. For a thread that serves.
void SetServingThreads(int threads);

// The calling thread's own context, of as many threads as it set; as many as there are CPUs if it
// set none. Made when first asked for, and anew when the number changes.
KernelContext& ComputeContext();

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_KERNELS_THREADS_H_
