// Interfaces of an attention layer on LibTorch operators, for training and for serving.
#ifndef TRIPTYCH_ENGINE_ATTENTION_ATTENTION_H_
#define TRIPTYCH_ENGINE_ATTENTION_ATTENTION_H_

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>

#include <utility>

#include "engine/attention/dense.h"
#include "engine/attention/dropout.h"
#include "engine/base/formats.h"

namespace triptych {

// Attention over whole sequences. Thread safety: const methods may be called concurrently.
class Attention {
 public:
  virtual ~Attention() = default;

  // x attends to y by the kind's defining formula (expanded for MLA). Differentiable. `causal` is
  // for self-attention, where x = y. Rounds the rows that a cache would hold to the format `cache`.
  // `dropout`, unless null, acts on the attention weights.
  //   x: [batch, L1, D1]   y: [batch, L2, D2]   returns [batch, L1, D1]
  virtual at::Tensor Dense(const at::Tensor& x, const at::Tensor& y, bool causal, CacheFormat cache,
                           Dropout* dropout) const = 0;
};

// Self-attention over a cache of rows: the projections before and after the core, the softmax of
// scores() times v, over KeysAndValues() of the rows. Thread safety: const methods may
// be called concurrently.
class CachedAttention {
 public:
  virtual ~CachedAttention() = default;

  //   x: [..., tokens, D1]   positions: [tokens] int64   returns [..., tokens, H, key_width]
  virtual at::Tensor Queries(const at::Tensor& x, const at::Tensor& positions) const = 0;
  //   y: [..., tokens, D2]   positions: [tokens] int64   returns [..., tokens, row_width]
  virtual at::Tensor Rows(const at::Tensor& y, const at::Tensor& positions) const = 0;
  //   attended: [..., H * value_width]   returns [..., D1]
  virtual at::Tensor Output(const at::Tensor& attended) const = 0;

  // The keys and values of rows, of each group: query head h reads those of g = h mod G.
  //   rows: [..., row_width]   returns [..., G, key_width], [..., G, value_width]
  virtual std::pair<at::Tensor, at::Tensor> KeysAndValues(const at::Tensor& rows) const = 0;
  virtual ScoreOptions scores() const = 0;
};

// Rounds rows [..., row_width] as a cache of this format does; keeps their dtype. `width` is that
// of CacheRotation. The last `wide` numbers of a row have 8 bits in kInt4.
at::Tensor AsCached(const at::Tensor& rows, CacheFormat format, int64_t width, int64_t wide = 0);

// The positions 0, 1, 2, ... of a whole sequence x: [..., length, D] -> [length] int64.
inline at::Tensor PositionsOf(const at::Tensor& x) {
  return at::arange(x.size(-2), x.options().dtype(at::kLong));
}

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_ATTENTION_ATTENTION_H_
