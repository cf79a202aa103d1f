// An attention layer, as the decoder sees it.
#ifndef TRIPTYCH_ENGINE_ATTENTION_ATTENTION_H_
#define TRIPTYCH_ENGINE_ATTENTION_ATTENTION_H_

#include <ATen/ATen.h>

#include "engine/kernels/paged_attention.h"

namespace triptych {

// The token rows of one step: tokens of several sequences, one after another.
struct PagedStep {
  at::Tensor positions;                  // [tokens] int64, of each token in its sequence
  at::Tensor rows;                       // [tokens] int64, of each token in the flattened cache
  std::vector<PagedSequence> sequences;  // in the order of their tokens
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
  //   x: [tokens, D] float32   cache: [blocks, row_width, block_positions] float32 or bfloat16
  //   returns [tokens, D] float32
  virtual at::Tensor Paged(const at::Tensor& x, const PagedStep& step, at::Tensor& cache) const = 0;

 protected:
  // Writes `rows` into the cache and attends.
  //   q: [tokens, heads, key_width] float32   rows: [tokens, row_width] float32
  //   returns [tokens, heads * value_width] float32
  static at::Tensor WriteAndAttend(const at::Tensor& q, const at::Tensor& rows,
                                   const PagedRowLayout& layout, double scale,
                                   const PagedStep& step, at::Tensor& cache);
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_ATTENTION_ATTENTION_H_
