// How many threads compute.
#ifndef TRIPTYCH_ENGINE_KERNELS_THREADS_H_
#define TRIPTYCH_ENGINE_KERNELS_THREADS_H_

namespace triptych {

// Operations that the calling thread starts use this many threads, matrix products of the BLAS
// library (a setting of the whole process) included.
void SetComputeThreads(int threads);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_KERNELS_THREADS_H_
