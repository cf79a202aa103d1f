// An attention layer on kernels. Torch-free.
#ifndef TRIPTYCH_ENGINE_BACKEND_CPU_ATTENTION_LAYER_H_
#define TRIPTYCH_ENGINE_BACKEND_CPU_ATTENTION_LAYER_H_

#include <cstdint>
#include <vector>

#include "engine/kernels/context.h"
#include "engine/kernels/paged_attention.h"

namespace triptych::cpu {

// Keys and values of a prompt's first positions in one layer, which expanded attention has
// expanded: as rows of a cache whose block i holds the positions from i * block_positions on.
struct ExpandedRows {
  kernels::PagedCache cache;  // float32
  int64_t length = 0;         // at most where the next run starts
};

// The new tokens of a step, cut into runs that are attended in one way.
struct LayerStep {
  std::vector<int64_t> positions;       // [tokens], of each token in its sequence
  std::vector<kernels::TokenRun> runs;  // in the order of their tokens
  std::vector<bool> expand;             // [runs]: whether MLA attends the run by expanded attention
  // [runs]: the rows of this layer that are kept of the prompt of a run which expands; attending
  // adds the run's own. Null where none are: those of all positions are expanded for the run alone.
  std::vector<ExpandedRows*> kept;

  int64_t tokens() const { return static_cast<int64_t>(positions.size()); }
};

// Const methods are safe to call from several threads, each with a context of its own.
class AttentionLayer {
 public:
  virtual ~AttentionLayer() = default;

  // Causal self-attention of new tokens over the paged cache, their own rows included: writes the
  // tokens' rows, then attends. A token's result is the same bits whatever else is in the step, and
  // on any number of threads.
  //   x: [tokens, D]   y: [tokens, D], not overlapping x
  virtual void Attend(const float* x, const LayerStep& step, const kernels::PagedCache& cache,
                      kernels::KernelContext& context, float* y) const = 0;

  // Bytes of its packed weights.
  virtual int64_t weight_bytes() const = 0;
  // Elements of a row of ExpandedRows; 0 if the layer expands nothing.
  virtual int64_t expanded_width() const { return 0; }
};

}  // namespace triptych::cpu

#endif  // TRIPTYCH_ENGINE_BACKEND_CPU_ATTENTION_LAYER_H_
