// An attention layer, as the decoder sees it.
#ifndef TRIPTYCH_ENGINE_ATTENTION_ATTENTION_H_
#define TRIPTYCH_ENGINE_ATTENTION_ATTENTION_H_

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "engine/kernels/paged_attention.h"
#include "engine/kernels/workspace.h"

namespace triptych {

// The new tokens of one step: of several sequences, one after another.
struct PagedStep {
  std::vector<int64_t> positions;        // of each token in its sequence
  std::vector<PagedSequence> sequences;  // in the order of their tokens

  int64_t tokens() const { return static_cast<int64_t>(positions.size()); }
};

// Const methods are safe to call from several threads.
class Attention {
 public:
  virtual ~Attention() = default;

  // Whole sequences: x attends y, with the kind's defining operations (vanilla for MLA).
  // Differentiable. `causal` for self-attention, where x = y.
  //   x: [batch, L1, D1]   y: [batch, L2, D2]   returns [batch, L1, D1]
  virtual at::Tensor Dense(const at::Tensor& x, const at::Tensor& y, bool causal) const = 0;

  // Derives what Paged needs from the weights as they are now, in float32 or bfloat16.
  virtual void PrepareToServe() = 0;
  // Frees the weights that Dense alone reads. REQUIRES: PrepareToServe(); Dense is not called
  // again.
  virtual void DropDense() = 0;

  // Causal self-attention of new tokens over the paged cache, their own rows included: writes the
  // tokens' rows, then attends. REQUIRES: PrepareToServe().
  // A token's result is the same bits whatever else is in the step, and on any number of threads.
  //   x: [tokens, D]   cache: [blocks, row_width, block_positions] float32 or bfloat16
  //   y: [tokens, D], not overlapping x
  virtual void Paged(const float* x, const PagedStep& step, const at::Tensor& cache,
                     Workspace& workspace, float* y) const = 0;

 protected:
  // Writes `rows` into the cache and attends.
  //   q: token t's queries [heads, key_width] start at q + t * q_stride
  //   rows: token t's row [row_width] starts at rows + t * rows_stride
  //   out: [tokens, heads, value_width]
  static void WriteAndAttend(const float* q, int64_t q_stride, const float* rows,
                             int64_t rows_stride, const PagedRowLayout& layout, double scale,
                             const PagedStep& step, const at::Tensor& cache, float* out);
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_ATTENTION_ATTENTION_H_
