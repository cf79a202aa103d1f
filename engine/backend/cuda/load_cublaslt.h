// Lazy loading of cuBLASLt: a server on the CPU starts sooner, and a machine without CUDA's
// libraries runs the same binary.
#ifndef TRIPTYCH_ENGINE_BACKEND_CUDA_LOAD_CUBLASLT_H_
#define TRIPTYCH_ENGINE_BACKEND_CUDA_LOAD_CUBLASLT_H_

#include <string>

namespace triptych::cuda {

// Loads the library once per process. Returns an empty string on success, else the reason in one
// line.
// cuBLASLt's functions may be called only after success. Thread-safe.
const std::string& LoadCublasLt();

}  // namespace triptych::cuda

#endif  // TRIPTYCH_ENGINE_BACKEND_CUDA_LOAD_CUBLASLT_H_
