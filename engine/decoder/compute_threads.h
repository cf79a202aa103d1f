// Number of threads for training, evaluation and conversion.
#ifndef TRIPTYCH_ENGINE_DECODER_COMPUTE_THREADS_H_
#define TRIPTYCH_ENGINE_DECODER_COMPUTE_THREADS_H_

#include <cstdint>
#include <functional>

namespace triptych {

// Sets the number of threads of the operations of LibTorch that the calling thread starts, and of
// the matrix products of the BLAS library, which is a setting of the whole process. REQUIRES:
// threads >= 1.
void SetComputeThreads(int threads);

// Calls run(0) to run(count - 1) concurrently, on the calling thread's number of compute threads,
// each of which computes by itself. (Splitting single operations over threads loses far more to
// waiting, above all on a busy machine.) Returns when all calls are done. Throws the exception of
// the first call that threw.
void RunOnComputeThreads(int64_t count, const std::function<void(int64_t)>& run);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_DECODER_COMPUTE_THREADS_H_
