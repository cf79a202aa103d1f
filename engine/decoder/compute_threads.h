// How many threads train, evaluate and convert.
#ifndef TRIPTYCH_ENGINE_DECODER_COMPUTE_THREADS_H_
#define TRIPTYCH_ENGINE_DECODER_COMPUTE_THREADS_H_

#include <cstdint>
#include <functional>

namespace triptych {

// LibTorch's operations that the calling thread starts use this many threads, matrix products of
// the BLAS library (a setting of the whole process) included. `threads` >= 1.
void SetComputeThreads(int threads);

// Calls run(0) to run(count - 1), several at once: on as many threads as the calling one computes
// with, each of which computes alone. Splitting single operations over threads loses far more to
// waiting, above all beside other work. Returns when all are done, and throws what the first of
// them threw.
void RunOnComputeThreads(int64_t count, const std::function<void(int64_t)>& run);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_DECODER_COMPUTE_THREADS_H_
