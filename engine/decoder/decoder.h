// The decoder: embedding, pre-norm residual blocks, output matrix (definitions, section 9).
#ifndef TRIPTYCH_ENGINE_DECODER_DECODER_H_
#define TRIPTYCH_ENGINE_DECODER_DECODER_H_

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/attention/attention.h"
#include "engine/attention/cost_model.h"
#include "engine/attention/linear.h"
#include "engine/attention/rotary.h"
#include "engine/decoder/dropout.h"
#include "engine/decoder/weights.h"
#include "engine/kernels/workspace.h"
#include "engine/kv_cache/storage.h"
#include "engine/model/config.h"

namespace triptych {

// Const methods are safe to call from several threads.
class Decoder {
 public:
  // `weights` holds what ExpectedTensors(config) lists; tensors are shared, not copied. Linear
  // layers and attention compute in `compute_dtype`; the residual stream and the logits in
  // float32, or in float64 if that is the compute dtype.
  Decoder(const ModelConfig& config, const Weights& weights, at::ScalarType compute_dtype);

  // Whole sequences, differentiable. `dropout`, if given, acts on what blocks add to the residual
  // stream; `attention_inputs`, if given, gets what each layer's attention reads.
  //   ids: [batch, length] int64, length <= max_position_embeddings
  //   attention_inputs: of each layer [batch, length, D] in the compute dtype
  //   returns logits [batch, length, vocab_size]
  at::Tensor Forward(const at::Tensor& ids, Dropout* dropout = nullptr,
                     std::vector<at::Tensor>* attention_inputs = nullptr) const;

  // Derives what Step needs from the weights as they are now. REQUIRES: they are of the compute
  // dtype. Serves on kernels in float32 and bfloat16 on the CPU, and otherwise, in float64 or on
  // another device, on LibTorch's operations.
  //
  // MLA on kernels attends a prompt's tokens from position `vanilla_from` on by vanilla attention
  // in those layers where that can pay; by default from where it pays (cost_model.h).
  void PrepareToServe(std::optional<int64_t> vanilla_from = {});
  // Frees the weights that Step does not read, most of which PrepareToServe copied.
  // REQUIRES: PrepareToServe(); Forward is not called again.
  void DropDense();

  // New tokens of several sequences over the paged cache. REQUIRES: PrepareToServe(). Throws
  // std::out_of_range if an id or a position is not the model's.
  //
  // On kernels it computes in float32; under a bfloat16 compute dtype, what weights are multiplied
  // with is rounded to bfloat16. A token's logits are the same bits whatever else is in the step,
  // however its sequence was cut into steps, and on any number of threads (of ComputePool()). That
  // is so while the rows of later tokens, which count zero times, are finite: as all weights that
  // LoadCheckpoint accepts are.
  //   ids: [tokens]   logit_rows: [rows], the tokens whose logits are wanted
  //   returns logits [rows, vocab_size], the workspace's
  std::span<const float> Step(std::span<const int64_t> ids, const PagedStep& step,
                              std::span<const int64_t> logit_rows, KvCacheStorage& cache,
                              Workspace& workspace) const;
  // The same on LibTorch's operations. REQUIRES: not served on kernels.
  //   returns logits [rows, vocab_size] in float32 or wider, on device()
  at::Tensor StepOnTensors(std::span<const int64_t> ids, const PagedStep& step,
                           std::span<const int64_t> logit_rows, KvCacheStorage& cache) const;

  const ModelConfig& config() const { return config_; }
  // As PrepareToServe chose: kNeverVanilla if no layer can gain by it.
  int64_t vanilla_from() const { return vanilla_from_; }
  // Of each layer's weights, if the attention is MLA.
  std::vector<ReducedForm> reduced_forms() const;
  // Where the weights are, and what is computed from them.
  at::Device device() const { return token_embedding_.device(); }

 private:
  struct Norm {
    at::Tensor weight;                      // [D]
    at::Tensor bias;                        // [D], or undefined
    std::vector<float> packed_weight = {};  // the same for serving
    std::vector<float> packed_bias = {};    // empty if undefined
  };
  struct Layer {
    Norm attention_norm;
    std::unique_ptr<Attention> attention;
    Norm mlp_norm;
    Linear gate;             // [intermediate, D]; undefined under GELU
    Linear up;               // [intermediate, D]
    Linear down;             // [D, intermediate]
    PackedLinear packed_in;  // gate, if defined, then up
    PackedLinear packed_down;
  };

  Layer MakeLayer(const Weights& weights, const Rotary& rotary, int64_t index) const;
  // ids: [...], positions: broadcastable to ids -> [..., D]
  at::Tensor Embed(const at::Tensor& ids, const at::Tensor& positions) const;
  // x: [..., D] -> [..., D] in x's dtype.
  at::Tensor Normalize(const Norm& norm, const at::Tensor& x) const;
  // x: [..., D] in the compute dtype -> [..., D].
  at::Tensor Mlp(const Layer& layer, const at::Tensor& x) const;

  // `x` through all the blocks: attend(layer, normal) is what attention adds, add(x, branch) adds.
  //   x: [..., D] -> [..., D]
  template <typename Attend, typename Add>
  at::Tensor Blocks(at::Tensor x, const Attend& attend, const Add& add) const;

  // Throws std::out_of_range.
  void CheckStep(std::span<const int64_t> ids, const PagedStep& step) const;
  // Of Step on kernels. x: [rows, D] -> y: [rows, D].
  void PackedEmbed(std::span<const int64_t> ids, const std::vector<int64_t>& positions,
                   float* y) const;
  void PackedNormalize(const Norm& norm, const float* x, int64_t rows, float* y) const;
  void PackedMlp(const Layer& layer, const float* x, int64_t rows, Workspace& workspace,
                 float* y) const;

  ModelConfig config_;
  int64_t vanilla_from_ = kNeverVanilla;
  at::ScalarType compute_dtype_;
  at::ScalarType residual_dtype_;
  at::Tensor token_embedding_;     // [vocab, D]
  at::Tensor position_embedding_;  // [max_positions, D], or undefined
  std::vector<Layer> layers_;
  Norm final_norm_;
  Linear lm_head_;                       // [vocab, D]
  std::vector<float> packed_positions_;  // [max_positions, D], or empty
  PackedLinear packed_lm_head_;
};

// The number of elements of all weights.
int64_t ParameterCount(const ModelConfig& config);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_DECODER_DECODER_H_
