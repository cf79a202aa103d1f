// Decoder backend on CUDA kernels and cuBLASLt. Includes no CUDA header.
#ifndef TRIPTYCH_ENGINE_BACKEND_CUDA_CUDA_MODEL_H_
#define TRIPTYCH_ENGINE_BACKEND_CUDA_CUDA_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "engine/backend/cuda/cuda_weights.h"
#include "engine/backend/model_backend.h"
#include "engine/model/config.h"

namespace triptych {

// Throws LoadError unless the backend's kernels compute every layer of the config, in steps of
// options.max_step_tokens tokens.
void CheckServedByCuda(const ModelConfig& config, const BackendOptions& options);

// Weights, cache and the inputs of matrix products are bfloat16; the weights of routers, the
// residual stream, norms, softmax, sums and logits are float32. MLA attends prompt rows from
// info().expand_from on over expanded keys and values, and all others by the reduced path.
//
// A token's logits have the same bits whatever else is in the step and however its sequence was cut
// into steps, on one GPU model with one version of cuBLASLt. They depend on whether the token
// belongs to the prompt (info().prompt_rows_differ); the prefix cache keeps such rows apart.
//
// The constructor allocates all device memory, except that of block tables, which grow with the
// longest step, and of CUDA graphs. Steps without prefill replay one graph per shape.
class CudaModel final : public ModelBackend {
 public:
  // On GPU `device`. Throws LoadError if the device lacks the memory, the cache would hold no block
  // or the cache's format is not bfloat16; std::runtime_error with one line for errors of CUDA.
  CudaModel(const ModelConfig& config, CudaWeightSource& weights, const BackendOptions& options,
            int device = 0, const std::function<void(int64_t layers)>& on_layer = {});
  ~CudaModel() override;

  std::span<const float> Step(const StepInput& step) override;
  std::span<const LikelyTokens> likely() const override;
  std::span<const float> FetchLogits(std::span<const int64_t> likely_rows) override;
  const BackendInfo& info() const override;
  std::optional<ExpertLoad> expert_load() const override;

  // Device time of the last step, without copies. Excludes the logits if there are more than 256
  // rows of them.
  float device_milliseconds() const;
  // Bytes of weights that a step of `tokens` tokens reads: all matrices except an untied embedding
  // and, on average if each token chooses at random, the experts that none chooses.
  int64_t weight_bytes_read(int64_t tokens) const;

 private:
  class Impl;

  // Returns compute(). A sticky CudaError becomes DeviceLost.
  template <typename Compute>
  std::span<const float> OrLost(const Compute& compute);

  std::unique_ptr<Impl> impl_;
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BACKEND_CUDA_CUDA_MODEL_H_
