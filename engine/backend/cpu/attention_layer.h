// Interface of an attention layer on CPU kernels.
#ifndef TRIPTYCH_ENGINE_BACKEND_CPU_ATTENTION_LAYER_H_
#define TRIPTYCH_ENGINE_BACKEND_CPU_ATTENTION_LAYER_H_

#include <cstdint>
#include <vector>

#include "engine/kernels/context.h"
#include "engine/kernels/paged_attention.h"

namespace triptych::cpu {

// Expanded keys and values of a prompt's first positions in one layer, as rows of a cache whose
// block i holds the positions from i * block_positions on.
struct ExpandedRows {
  kernels::PagedCache cache;  // float32
  int64_t length = 0;         // positions; at most the start of the next run
};

// The new tokens of a step, cut into runs that each take one path through attention.
struct LayerStep {
  std::vector<int64_t> positions;       // [tokens], of each token in its sequence
  std::vector<kernels::TokenRun> runs;  // in the order of their tokens
  std::vector<bool> expand;             // [runs]: whether MLA takes the expanded path
  // [runs]: for an expanded run, the kept rows of its prompt in this layer; attending appends the
  // run's own. Null: the rows of all positions are expanded for this run only.
  std::vector<ExpandedRows*> kept;

  int64_t tokens() const { return static_cast<int64_t>(positions.size()); }
};

// Thread safety: const methods may be called concurrently, each with its own KernelContext.
class AttentionLayer {
 public:
  virtual ~AttentionLayer() = default;

  // Causal self-attention of the new tokens over the paged cache, their own rows included: writes
  // those rows, then attends. A token's result has the same bits whatever else is in the step and
  // on any number of threads.
  //   x: [tokens, D]   y: [tokens, D], not overlapping x
  virtual void Attend(const float* x, const LayerStep& step, const kernels::PagedCache& cache,
                      kernels::KernelContext& context, float* y) const = 0;

  // Bytes of the packed weights.
  virtual int64_t weight_bytes() const = 0;
  // Elements of a row of ExpandedRows; 0 if the layer expands nothing.
  virtual int64_t expanded_width() const { return 0; }
};

}  // namespace triptych::cpu

#endif  // TRIPTYCH_ENGINE_BACKEND_CPU_ATTENTION_LAYER_H_
