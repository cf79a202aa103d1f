// How many threads train, evaluate and convert.
#ifndef TRIPTYCH_ENGINE_DECODER_COMPUTE_THREADS_H_
#define TRIPTYCH_ENGINE_DECODER_COMPUTE_THREADS_H_

namespace triptych {

// LibTorch's operations that the calling thread starts use this many threads, matrix products of
// the BLAS library (a setting of the whole process) included. `threads` >= 1.
void SetComputeThreads(int threads);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_DECODER_COMPUTE_THREADS_H_
