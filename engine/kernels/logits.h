// Vectorised passes over one row of logits, for sampling.
#ifndef TRIPTYCH_ENGINE_KERNELS_LOGITS_H_
#define TRIPTYCH_ENGINE_KERNELS_LOGITS_H_

#include <cstdint>
#include <limits>

namespace triptych::kernels {

// In all functions, a token's id is its index in the row, NaN counts as -inf, and +inf as the
// largest float. On one instruction set a result depends on the row only. No function allocates on
// the heap.

// Logits of a block. The last block of a row may have fewer.
inline constexpr int64_t kLogitBlock = 256;

// The likeliest tokens of a row: those with a logit above `least`, and those with a logit equal to
// `least` up to the id `last`.
struct LikeliestTokens {
  float least = std::numeric_limits<float>::lowest();  // finite
  int32_t last = std::numeric_limits<int32_t>::max();

  bool Hold(int32_t token, float logit) const {
    return logit > least || (logit == least && token <= last);
  }
};

// Weight of a logit: 2^((logit - largest) * scale), zero below 2^-125. The relative error is
// below (2 + |logit - largest| * scale) * 2^-23.
struct LogitWeight {
  float largest;  // finite; at least as large as any weighed logit
  float scale;    // positive, finite
};

// The largest logit of each block; -inf if all are.
//   logits: [count]   maxima: [CeilDiv(count, kLogitBlock)]
void LogitMaxima(const float* logits, int64_t count, float* maxima);

// The weight of each logit; zero for -inf.
//   logits: [count]   weights: [count]
void WeighLogits(const float* logits, int64_t count, const LogitWeight& weight, float* weights);

// The sum of the weights of each block's likeliest tokens, in float64.
//   logits: [count]   maxima: LogitMaxima of them   sums: [CeilDiv(count, kLogitBlock)]
void SumLogitWeights(const float* logits, int64_t count, const float* maxima,
                     const LogitWeight& weight, const LikeliestTokens& likeliest, double* sums);

// Tokens in ascending order of ids.
struct Candidates {
  int64_t count;
  // Each array has room for kLogitBlock elements beyond `count`.
  int32_t* tokens;
  float* logits;
  float* weights;
};

// Puts the likeliest tokens and their logits into `found`, without weights.
//   logits: [count]   maxima: LogitMaxima of them
void FindLikeliest(const float* logits, int64_t count, const float* maxima,
                   const LikeliestTokens& likeliest, Candidates& found);

// Takes candidates in order, the likeliest first and ties by lower id, until their weights sum to
// `enough`. Returns the last one taken; the last of all if the sum is never reached. Removes
// candidates. The time is linear in their number, whatever their logits. REQUIRES: there is a
// candidate; equal logits have equal weights; enough > 0.
int32_t LastToSum(double enough, Candidates& candidates);

}  // namespace triptych::kernels

#endif  // TRIPTYCH_ENGINE_KERNELS_LOGITS_H_
