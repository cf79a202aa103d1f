// Decoder backend on LibTorch operators, for any dtype and any device.
#ifndef TRIPTYCH_ENGINE_BACKEND_TENSORS_TENSOR_MODEL_H_
#define TRIPTYCH_ENGINE_BACKEND_TENSORS_TENSOR_MODEL_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/attention/attention.h"
#include "engine/backend/model_backend.h"
#include "engine/decoder/frame.h"
#include "engine/decoder/weights.h"
#include "engine/model/config.h"

namespace triptych {

// Attends sequences of similar lengths together. MLA always takes the reduced path. Results may
// round differently in another batch.
class TensorModel final : public ModelBackend {
 public:
  // Serves on the weights' device, which also holds the cache, and shares their tensors. Throws
  // LoadError if the cache would hold no block.
  TensorModel(const ModelConfig& config, const Weights& weights, ComputeType compute,
              const BackendOptions& options);

  // Throws also std::runtime_error, with a one-line message, for errors of LibTorch.
  std::span<const float> Step(const StepInput& step) override;
  const BackendInfo& info() const override { return info_; }

  // A step's logits [rows, vocab_size] in float32 or wider, on the device.
  at::Tensor Logits(const StepInput& step);

  // A layer's cache [blocks, row_width, block_positions] without inverse norms, to inspect or fill.
  // Layers of different groups share it: they have other blocks.
  at::Tensor& cache(int64_t layer) { return cache_.at(info_.geometry.SlotOf(layer)); }
  // The inverse norms of each slot [blocks, normed keys, block_positions], likewise; empty unless
  // keys are normed.
  std::vector<at::Tensor>& inverse_norms() { return norms_; }

 private:
  // A StepInput as tensors on the device.
  struct TensorStep;

  // Writes the rows of new tokens into a layer's cache.
  //   rows: [tokens, row_width]
  void WriteRows(const at::Tensor& rows, const TensorStep& step, int64_t layer);
  // q: [tokens, H, key_width] -> [tokens, H * value_width]
  at::Tensor Attend(const at::Tensor& q, const TensorStep& step, int64_t layer) const;

  DecoderFrame frame_;
  std::vector<std::unique_ptr<const CachedAttention>> attention_;  // of each layer
  BackendInfo info_;
  std::vector<at::Tensor> cache_;  // of each slot of CacheGeometry
  std::vector<at::Tensor> norms_;  // likewise, float32
  at::Tensor logits_;              // of the last step, in host memory
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BACKEND_TENSORS_TENSOR_MODEL_H_
