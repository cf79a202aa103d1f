// Decoder backend on CPU kernels.
#ifndef TRIPTYCH_ENGINE_BACKEND_CPU_CPU_MODEL_H_
#define TRIPTYCH_ENGINE_BACKEND_CPU_CPU_MODEL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/backend/cpu/attention_layer.h"
#include "engine/backend/cpu/cache_memory.h"
#include "engine/backend/cpu/expanded_prompt.h"
#include "engine/backend/cpu/mlp_layer.h"
#include "engine/backend/model_backend.h"
#include "engine/kernels/context.h"
#include "engine/kernels/packed_linear.h"
#include "engine/model/config.h"

namespace triptych::cpu {

// A decoder's packed weights.
struct CpuWeights {
  struct Norm {
    std::vector<float> weight;  // [D], or empty: no norm
    std::vector<float> bias;    // [D], or empty
  };
  struct Layer {
    Norm attention_norm;
    std::unique_ptr<const AttentionLayer> attention;
    Norm attention_output_norm;
    Norm mlp_norm;
    std::unique_ptr<const MlpLayer> mlp;
    Norm mlp_output_norm;
  };

  // [vocab, D]; absent if tied to the output matrix.
  std::optional<kernels::PackedLinear> embedding;
  std::vector<float> positions;  // [max_positions, D], or empty
  std::vector<Layer> layers;
  Norm final_norm;
  kernels::PackedLinear output;  // [vocab, D]
  // The first prompt position that the layers attend by the expanded path.
  std::optional<int64_t> expand_from;
};

// Computes in float32, except that inputs of products are rounded as PackedLinear says. A token's
// logits have the same bits whatever else is in the step, however its sequence was cut into steps,
// and on any number of threads, if all weights are finite. A step of a size seen before allocates
// nothing on the heap.
//
// MLA attends prompt tokens from `expand_from` on by the expanded path and all others by the
// reduced path: the choice depends only on the position and on whether the token belongs to the
// prompt. Expanded keys and values are kept until their prompt is computed, while those of all
// prompts take at most MostScratchBytes. Other prompts expand theirs again in each step.
class CpuModel final : public ModelBackend {
 public:
  // Throws LoadError if the cache would hold no block.
  CpuModel(const ModelConfig& config, CpuWeights weights, const BackendOptions& options,
           std::shared_ptr<kernels::KernelContext> context);

  std::span<const float> Step(const StepInput& step) override;
  std::unique_ptr<PromptScratch> MakePromptScratch(int64_t prompt) override;
  std::unique_ptr<ModelBackend> WithOwnCache(int64_t blocks) const override;
  const BackendInfo& info() const override { return info_; }
  std::optional<ExpertLoad> expert_load() const override;

  // A layer's cache, to inspect or fill. Layers of different groups share it: they have other
  // blocks.
  const kernels::PagedCache& cache(int64_t layer) const {
    return cache_.layer(places_.at(layer).slot);
  }

 private:
  CpuModel(const ModelConfig& config, std::shared_ptr<const CpuWeights> weights,
           const BackendOptions& options, std::shared_ptr<kernels::KernelContext> context);

  // Fills step_.
  void CutIntoRuns(const StepInput& step);
  // x: [rows, D] -> y: [rows, D]
  void Embed(const StepInput& step, float* y);
  void Normalize(const CpuWeights::Norm& norm, const float* x, int64_t rows, float* y);
  // Adds branch [rows, D], normed if there is such a norm, to x. `normal`: room for [rows, D].
  void AddBranch(const CpuWeights::Norm& norm, const float* branch, int64_t rows, float* normal,
                 float* x);

  const ModelConfig config_;
  const std::shared_ptr<const CpuWeights> weights_;
  const BackendOptions options_;
  const std::shared_ptr<kernels::KernelContext> context_;
  BackendInfo info_;
  // A layer's place in the cache, as CacheGeometry has it.
  struct Place {
    int64_t group;
    int64_t slot;
  };
  const int64_t groups_;
  std::vector<Place> places_;             // [layers]
  CacheMemory cache_;                     // by slot
  LayerStep step_;                        // the current step
  std::vector<ExpandedPrompt*> prompts_;  // [runs] of that step; null if nothing is kept
  std::vector<const int32_t*> tables_;    // [runs] of that step: blocks of all groups
  std::vector<int64_t> expanded_widths_;  // [layers]
  int64_t expanded_bytes_ = 0;            // held by all ExpandedPrompts
  std::vector<float> logits_;             // of the last step; never shrinks
};

}  // namespace triptych::cpu

#endif  // TRIPTYCH_ENGINE_BACKEND_CPU_CPU_MODEL_H_
