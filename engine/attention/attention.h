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

  // Derives what Paged needs from the weights as they are now.
  virtual void PrepareToServe() = 0;

  // Causal self-attention of new tokens over the paged cache, their own rows included: writes the
  // tokens' rows, then attends. REQUIRES: PrepareToServe().
  //   x: [tokens, D]   cache: [blocks, block_positions, row_width]   returns [tokens, D]
  virtual at::Tensor Paged(const at::Tensor& x, const PagedStep& step, at::Tensor& cache) const = 0;

 protected:
  // Writes `rows` into the cache and attends.
  //   q: [tokens, heads, key_width]   rows: [tokens, row_width]
  //   returns [tokens, heads * value_width] in q's dtype
  static at::Tensor WriteAndAttend(const at::Tensor& q, const at::Tensor& rows,
                                   const PagedRowLayout& layout, double scale,
                                   const PagedStep& step, at::Tensor& cache);
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_ATTENTION_ATTENTION_H_
