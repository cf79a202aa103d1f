// Passes over one row of logits, for the choice of a token.
#ifndef TRIPTYCH_ENGINE_KERNELS_LOGITS_H_
#define TRIPTYCH_ENGINE_KERNELS_LOGITS_H_

#include <cstdint>
#include <limits>

namespace triptych::kernels {

// Throughout, a token's id is its place in the row, a NaN counts as -inf, and +inf as the largest
// float. On one instruction set a result depends on nothing but the row. No function takes anything
// from the heap.

// A row is passed over in blocks of so many logits; the last one may have fewer.
inline constexpr int64_t kLogitBlock = 256;

// The likeliest tokens of a row: those with a larger logit than `least`, and of those with that
// logit all up to the id `last`.
struct LikeliestTokens {
  float least = std::numeric_limits<float>::lowest();  // finite
  int32_t last = std::numeric_limits<int32_t>::max();

  bool Hold(int32_t token, float logit) const {
    return logit > least || (logit == least && token <= last);
  }
};

// What a logit weighs: 2^((logit - largest) * scale), zero below 2^-125. The relative error is
// below (2 + |logit - largest| * scale) * 2^-23.
struct LogitWeight {
  float largest;  // finite; no logit that is weighed is larger
  float scale;    // positive, finite
};

// The largest logit of each block, -inf where all are.
//   logits: [count]   maxima: [CeilDiv(count, kLogitBlock)]
void LogitMaxima(const float* logits, int64_t count, float* maxima);

// The weight of each logit; zero of -inf.
//   logits: [count]   weights: [count]
void WeighLogits(const float* logits, int64_t count, const LogitWeight& weight, float* weights);

// The sum of each block's weights in float64, of the likeliest tokens alone.
//   logits: [count]   maxima: LogitMaxima of them   sums: [CeilDiv(count, kLogitBlock)]
void SumLogitWeights(const float* logits, int64_t count, const float* maxima,
                     const LogitWeight& weight, const LikeliestTokens& likeliest, double* sums);

// Tokens in the order of their ids.
struct Candidates {
  int64_t count;
  // Each array has room for kLogitBlock more than there are.
  int32_t* tokens;
  float* logits;
  float* weights;
};

// Puts the likeliest tokens and their logits into `found`, without weights.
//   logits: [count]   maxima: LogitMaxima of them
void FindLikeliest(const float* logits, int64_t count, const float* maxima,
                   const LikeliestTokens& likeliest, Candidates& found);

// The last of the fewest candidates, the likeliest first, equals by lower id, whose weights sum to
// `enough`; of all if they never do. Drops candidates. The time is linear in their number, whatever
// they are. REQUIRES: there are candidates; equals have equal weights; enough > 0.
int32_t LastToSum(double enough, Candidates& candidates);

}  // namespace triptych::kernels

#endif  // TRIPTYCH_ENGINE_KERNELS_LOGITS_H_
