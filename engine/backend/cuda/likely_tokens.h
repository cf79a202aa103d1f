// The likeliest tokens of rows of logits, found on the device.
#ifndef TRIPTYCH_ENGINE_BACKEND_CUDA_LIKELY_TOKENS_H_
#define TRIPTYCH_ENGINE_BACKEND_CUDA_LIKELY_TOKENS_H_

#include <algorithm>
#include <cstdint>

#include "engine/backend/cuda/device_memory.h"

namespace triptych::cuda {

inline constexpr int kLikelyTokens = 128;

// Tokens per row: kLikelyTokens, or the vocabulary if that is smaller.
inline int LikelyTokenCount(int64_t vocab) {
  return static_cast<int>(std::min<int64_t>(kLikelyTokens, vocab));
}

// In device memory, with n = LikelyTokenCount(vocab).
struct LikelyOutput {
  int32_t* tokens;  // [rows, n], ascending ids; equal logits are kept by lower id
  float* logits;    // [rows, n]
  // [rows] each, of all logits of the row.
  double* log_sum_exps;  // -inf if no token is possible
  double* weight_sums;   // as LikelyTokens::weight_sum
};

// logits: [rows, vocab]   scales: [rows]. NaN counts as -inf, +inf as the largest float. A row's
// result depends on that row only, bit for bit.
void FindLikelyTokens(const float* logits, const float* scales, int vocab, int rows,
                      const LikelyOutput& out, cudaStream_t stream);

}  // namespace triptych::cuda

#endif  // TRIPTYCH_ENGINE_BACKEND_CUDA_LIKELY_TOKENS_H_
