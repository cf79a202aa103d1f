// GPUs and the models that run on them. Includes no CUDA header; a build without CUDA links
// functions that find no GPU.
#ifndef TRIPTYCH_ENGINE_BACKEND_CUDA_CUDA_BACKEND_H_
#define TRIPTYCH_ENGINE_BACKEND_CUDA_CUDA_BACKEND_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/backend/cuda/cuda_weights.h"
#include "engine/backend/model_backend.h"
#include "engine/model/config.h"

namespace triptych {

struct CudaDevice {
  std::string name;  // "NVIDIA H100 80GB HBM3"
  int64_t memory_bytes = 0;
};

// The GPUs that this build's kernels run on, in CUDA's order. Empty if the build has no CUDA, or
// the machine no driver or no such GPU. Allocates no GPU memory. Safe to call from any thread.
std::vector<CudaDevice> CudaDevices();

// Free memory of a GPU of CudaDevices, in bytes. Throws LoadError if CUDA reports an error.
int64_t FreeCudaBytes(int device);

// Why CudaDevices() is empty: "this build has no CUDA backend", "no CUDA driver", ...
std::string WhyNoCudaDevice();

// Bytes that a model needs on the device besides its KV cache, known before any tensor is read.
// Throws LoadError unless the backend serves such a model in steps of options.max_step_tokens.
struct CudaModelBytes {
  int64_t weights = 0;
  int64_t workspace = 0;  // activations, attention splits, logits, cuBLASLt
};
CudaModelBytes CountCudaModelBytes(const ModelConfig& config, const BackendOptions& options);

// Makes a decoder on GPU `device`. Weights, cache and the inputs of matrix products are bfloat16;
// the weights of routers, the residual stream, norms, softmax, sums and logits are float32. See
// CudaModel for its guarantees. Calls `on_layer` with the number of layers loaded so far. Throws
// LoadError if the device lacks the memory or the build has no CUDA, and what `weights` throws.
std::unique_ptr<ModelBackend> MakeCudaModel(const ModelConfig& config, CudaWeightSource& weights,
                                            const BackendOptions& options, int device,
                                            const std::function<void(int64_t layers)>& on_layer);

// Measured limits of a GPU, for planning.
struct CudaLimits {
  double copy_bytes = 0;      // bytes per second read plus written by a large copy
  double bfloat16_flops = 0;  // per second, of a large matrix product
};
// Takes about a second and 2 GiB of GPU memory. Throws LoadError.
CudaLimits MeasureCudaLimits(int device);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BACKEND_CUDA_CUDA_BACKEND_H_
