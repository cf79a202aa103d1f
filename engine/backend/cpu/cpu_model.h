// A decoder that serves on kernels, in the CPU's memory. Torch-free.
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
#include "engine/backend/model_backend.h"
#include "engine/kernels/context.h"
#include "engine/kernels/packed_linear.h"
#include "engine/model/config.h"

namespace triptych::cpu {

// A decoder's weights as kernels read them, each in one form.
struct CpuWeights {
  struct Norm {
    std::vector<float> weight;  // [D]
    std::vector<float> bias;    // [D], or empty
  };
  struct Layer {
    Norm attention_norm;
    std::unique_ptr<const AttentionLayer> attention;
    Norm mlp_norm;
    kernels::PackedLinear mlp_in;  // the gate, under SwiGLU, then up: [.., D]
    kernels::PackedLinear mlp_down;
  };

  // [vocab, D]; absent if it is tied to the output matrix.
  std::optional<kernels::PackedLinear> embedding;
  std::vector<float> positions;  // [max_positions, D], or empty
  std::vector<Layer> layers;
  Norm final_norm;
  kernels::PackedLinear output;  // [vocab, D]
  // The position of a prompt from which on the layers can expand keys and values.
  std::optional<int64_t> expand_from;
};

// Computes in float32, but for the inputs of products, which are rounded as PackedLinear says. A
// token's logits are the same bits whatever else is in the step, however its sequence was cut into
// steps, and on any number of threads, if all weights are finite. A step of a size that was seen
// before takes nothing from the heap.
//
// MLA attends the prompt's tokens from `expand_from` on by expanded attention, all others reduced:
// a function of the position and of whether a token is the prompt's. The keys and values that it
// expands are kept until their prompt is computed, while those of all prompts under way take no
// more than MostScratchBytes; those of other prompts are expanded anew in each step.
class CpuModel final : public ModelBackend {
 public:
  // Throws LoadError if the cache would hold no block.
  CpuModel(const ModelConfig& config, CpuWeights weights, const BackendOptions& options,
           std::shared_ptr<kernels::KernelContext> context);

  std::span<const float> Step(const StepInput& step) override;
  std::unique_ptr<PromptScratch> MakePromptScratch(int64_t prompt) override;
  const BackendInfo& info() const override { return info_; }

  // A layer's cache, for those who look into it or fill it.
  const kernels::PagedCache& cache(int64_t layer) const { return cache_.layer(layer); }

 private:
  // Fills step_.
  void CutIntoRuns(const StepInput& step);
  // x: [rows, D] -> y: [rows, D]
  void Embed(const StepInput& step, float* y);
  void Normalize(const CpuWeights::Norm& norm, const float* x, int64_t rows, float* y);
  void Mlp(const CpuWeights::Layer& layer, const float* x, int64_t rows, float* y);

  const ModelConfig config_;
  const CpuWeights weights_;
  const std::shared_ptr<kernels::KernelContext> context_;
  BackendInfo info_;
  CacheMemory cache_;
  LayerStep step_;                        // of the step under way
  std::vector<ExpandedPrompt*> prompts_;  // [runs] of that step, null where nothing is kept
  std::vector<int64_t> expanded_widths_;  // [layers]
  int64_t expanded_bytes_ = 0;            // of all prompts under way
  std::vector<float> logits_;             // of the last step; never shrinks
};

}  // namespace triptych::cpu

#endif  // TRIPTYCH_ENGINE_BACKEND_CPU_CPU_MODEL_H_
