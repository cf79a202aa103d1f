// An attention layer, as a decoder trains and as it serves it, on LibTorch's operations.
#ifndef TRIPTYCH_ENGINE_ATTENTION_ATTENTION_H_
#define TRIPTYCH_ENGINE_ATTENTION_ATTENTION_H_

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>

#include "engine/attention/dropout.h"
#include "engine/base/formats.h"
#include "engine/kernels/paged_attention.h"

namespace triptych {

// Const methods are safe to call from several threads.
class Attention {
 public:
  virtual ~Attention() = default;

  // Whole sequences: x attends y, with the kind's defining operations (vanilla for MLA).
  // Differentiable. `causal` for self-attention, where x = y. What a cache would keep of y is
  // rounded to `cache`. `dropout`, if given, acts on the attention weights.
  //   x: [batch, L1, D1]   y: [batch, L2, D2]   returns [batch, L1, D1]
  virtual at::Tensor Dense(const at::Tensor& x, const at::Tensor& y, bool causal, CacheFormat cache,
                           Dropout* dropout) const = 0;
};

// Self-attention whose keys and values lie in a cache of rows: what is computed before and after
// the core, softmax(scale() * q . k) v, which reads the rows by layout(). Const methods are safe to
// call from several threads.
class CachedAttention {
 public:
  virtual ~CachedAttention() = default;

  //   x: [..., tokens, D1]   positions: [tokens] int64   returns [..., tokens, H, key_width]
  virtual at::Tensor Queries(const at::Tensor& x, const at::Tensor& positions) const = 0;
  //   y: [..., tokens, D2]   positions: [tokens] int64   returns [..., tokens, row_width]
  virtual at::Tensor Rows(const at::Tensor& y, const at::Tensor& positions) const = 0;
  //   attended: [..., H * value_width]   returns [..., D1]
  virtual at::Tensor Output(const at::Tensor& attended) const = 0;

  virtual kernels::PagedRowLayout layout() const = 0;
  virtual double scale() const = 0;
};

// Rows [..., row_width] as a cache of this format gives them back, in their own dtype.
at::Tensor AsCached(const at::Tensor& rows, CacheFormat format);

// The positions 0, 1, 2, ... of a whole sequence x: [..., length, D] -> [length] int64.
inline at::Tensor PositionsOf(const at::Tensor& x) {
  return at::arange(x.size(-2), x.options().dtype(at::kLong));
}

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_ATTENTION_ATTENTION_H_
