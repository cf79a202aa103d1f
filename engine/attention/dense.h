// The core of attention on whole sequences, on plain differentiable tensor operations.
#ifndef TRIPTYCH_ENGINE_ATTENTION_DENSE_H_
#define TRIPTYCH_ENGINE_ATTENTION_DENSE_H_

#include <ATen/core/Tensor.h>

#include "engine/attention/dropout.h"

namespace triptych {

// Softmax attention of H query heads over G key/value heads, modular grouping: head h reads
// g = h mod G (engine/definitions.md#modular-grouping). K and V are never repeated for the heads
// that share them.
//   q: [batch, L1, H, d_qk]   k: [batch, L2, G, d_qk]   v: [batch, L2, G, d_v]
//   returns [batch, L1, H * d_v]
// `causal`: the queries are at the last L1 of the L2 positions, and position i sees 0 to i.
// `dropout`, if given, acts on the weights that the softmax gives.
at::Tensor AttendDense(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
                       bool causal, Dropout* dropout = nullptr);

// The same for sequences of many lengths side by side: a query sees positions 0 to `last` of its
// sequence. What lies beyond must be finite.
//   last: [batch, L1] int64
at::Tensor AttendPadded(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
                        const at::Tensor& last);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_ATTENTION_DENSE_H_
