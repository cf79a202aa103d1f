// Attention core over whole sequences, on differentiable tensor operations.
#ifndef TRIPTYCH_ENGINE_ATTENTION_DENSE_H_
#define TRIPTYCH_ENGINE_ATTENTION_DENSE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>

#include "engine/attention/dropout.h"

namespace triptych {

// Scores of a query q and the positions that it attends.
struct ScoreOptions {
  double scale;        // a score is scale * q . k
  double softcap = 0;  // if positive, a score s becomes softcap * tanh(s / softcap)
  // Causal attention only: positions that a query attends, its own and those before it.
  int64_t window = std::numeric_limits<int64_t>::max();
};

// Softmax attention of H query heads over G key/value heads with modular grouping: head h reads g =
// h mod G (engine/definitions.md#modular-grouping). Keys and values are not copied for the heads
// that share them.
//   q: [batch, L1, H, d_qk]   k: [batch, L2, G, d_qk]   v: [batch, L2, G, d_v]
//   returns [batch, L1, H * d_v]
// `causal`: the queries are the last L1 of the L2 positions, and position i attends to the window
// that ends at i.
// `dropout`, unless null, acts on the softmax weights.
at::Tensor AttendDense(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const ScoreOptions& scores, bool causal, Dropout* dropout = nullptr);

// The same for a padded batch of sequences of different lengths: a query attends to the window that
// ends at position `last` of its sequence. REQUIRES: the keys and values that a query does not
// attend are finite, too.
//   last: [batch, L1] int64
at::Tensor AttendPadded(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const ScoreOptions& scores, const at::Tensor& last);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_ATTENTION_DENSE_H_
