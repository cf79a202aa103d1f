// From one kind of attention to another: definitions, sections 3 to 5.
#ifndef TRIPTYCH_ENGINE_ATTENTION_ALGEBRA_H_
#define TRIPTYCH_ENGINE_ATTENTION_ALGEBRA_H_

#include <ATen/ATen.h>

namespace triptych {

// Key or value heads repeated so that head h of `heads` equals head h mod G of the input.
//   rows: [G * d, ...] -> [heads * d, ...]
at::Tensor RepeatHeads(const at::Tensor& rows, int64_t heads, int64_t d);

// The mean of all heads h with equal h mod `groups`.
//   rows: [H * d, ...] -> [groups * d, ...]
at::Tensor PoolHeads(const at::Tensor& rows, int64_t groups, int64_t d);

// One latent for keys and values: W_K = W_UK W_DKV and W_V = W_UV W_DKV.
struct LatentFactors {
  at::Tensor down;  // W_DKV: [r, D]
  at::Tensor up_k;  // W_UK: [rows of W_K, r]
  at::Tensor up_v;  // W_UV: [rows of W_V, r]
};

// The best factors of that rank in the mean square, by the singular value decomposition of
// [W_K; W_V] in float64 (Eckart and Young 1936): exact where its rank is at most `rank`.
//   w_k: [G * d_qk, D]   w_v: [G * d_v, D]   1 <= rank <= min(rows of both, D); float64 results
LatentFactors FactorKeyValue(const at::Tensor& w_k, const at::Tensor& w_v, int64_t rank);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_ATTENTION_ALGEBRA_H_
