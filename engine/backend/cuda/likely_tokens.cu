#include <cmath>

#include "engine/backend/cuda/device.cuh"
#include "engine/backend/cuda/likely_tokens.h"

namespace triptych::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kCandidates = 1024;
constexpr float kImpossible = -INFINITY;
constexpr float kLargest = 3.402823466e+38f;

// A logit as engine/serving/sampler.h interprets it.
__device__ inline float Usable(float logit) {
  return logit != logit ? kImpossible : fminf(logit, kLargest);
}

// Whether a token is likelier than another; the lower id among equals.
__device__ inline bool IsLikelier(float logit, int token, float other_logit, int other_token) {
  return logit > other_logit || (logit == other_logit && token < other_token);
}

// One thread block per row.
__global__ void __launch_bounds__(kThreads)
    FindLikely(const float* logits, const float* scales, int vocab, int count, LikelyOutput out) {
  __shared__ float candidate_logits[kCandidates];
  __shared__ int candidate_tokens[kCandidates];
  __shared__ double sums[kThreads], weight_sums[kThreads];
  __shared__ float chosen_logits[kLikelyTokens];
  __shared__ int chosen_tokens[kLikelyTokens];
  __shared__ float bound, largest;
  __shared__ int found;
  const int thread = threadIdx.x;
  const size_t row = blockIdx.x;
  const float* const x = logits + row * vocab;

  // The bound is the count-th largest of the threads' maxima: at least `count` tokens reach it, and
  // rarely many more.
  float most = kImpossible;
  for (int i = thread; i < vocab; i += kThreads) most = fmaxf(most, Usable(x[i]));
  candidate_logits[thread] = most;
  if (thread == 0) found = 0, bound = kImpossible;
  __syncthreads();
  int likelier = 0;
  for (int i = 0; i < kThreads; ++i) {
    likelier += IsLikelier(candidate_logits[i], i, most, thread) ? 1 : 0;
  }
  if (likelier == count - 1) bound = most;
  if (likelier == 0) largest = most;
  __syncthreads();

  const float least = bound, top = largest;
  const float scale = scales[row];
  double sum = 0, weight_sum = 0;
  for (int i = thread; i < vocab; i += kThreads) {
    const float logit = Usable(x[i]);
    if (logit != kImpossible) {
      sum += expf(logit - top);
      weight_sum += expf((logit - top) * scale);
    }
    if (logit >= least) {
      const int at = atomicAdd(&found, 1);
      if (at < kCandidates) candidate_logits[at] = logit, candidate_tokens[at] = i;
    }
  }
  sums[thread] = sum;
  weight_sums[thread] = weight_sum;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (thread < half) {
      sums[thread] += sums[thread + half];
      weight_sums[thread] += weight_sums[thread + half];
    }
    __syncthreads();
  }
  const int candidates = found;
  if (candidates <= kCandidates) {
    for (int i = thread; i < candidates; i += kThreads) {
      const float logit = candidate_logits[i];
      const int token = candidate_tokens[i];
      int rank = 0;
      for (int j = 0; j < candidates; ++j) {
        rank += IsLikelier(candidate_logits[j], candidate_tokens[j], logit, token) ? 1 : 0;
      }
      if (rank < count) chosen_logits[rank] = logit, chosen_tokens[rank] = token;
    }
    __syncthreads();
  } else {
    // Too many candidates, as many logits are equal: choose one token after another.
    for (int n = 0; n < count; ++n) {
      float best = kImpossible;
      int token = vocab;
      for (int i = thread; i < vocab; i += kThreads) {
        const float logit = Usable(x[i]);
        const bool taken =
            n > 0 && !IsLikelier(chosen_logits[n - 1], chosen_tokens[n - 1], logit, i);
        if (!taken && (token == vocab || IsLikelier(logit, i, best, token)))
          best = logit, token = i;
      }
      candidate_logits[thread] = best;
      candidate_tokens[thread] = token;
      __syncthreads();
      for (int half = kThreads / 2; half > 0; half /= 2) {
        const int other = thread + half;
        if (thread < half && candidate_tokens[other] < vocab &&
            (candidate_tokens[thread] == vocab ||
             IsLikelier(candidate_logits[other], candidate_tokens[other], candidate_logits[thread],
                        candidate_tokens[thread]))) {
          candidate_logits[thread] = candidate_logits[other];
          candidate_tokens[thread] = candidate_tokens[other];
        }
        __syncthreads();
      }
      if (thread == 0)
        chosen_logits[n] = candidate_logits[0], chosen_tokens[n] = candidate_tokens[0];
      __syncthreads();
    }
  }
  // Output in ascending order of ids.
  if (thread < count) {
    int rank = 0;
    for (int j = 0; j < count; ++j) rank += chosen_tokens[j] < chosen_tokens[thread] ? 1 : 0;
    out.tokens[row * count + rank] = chosen_tokens[thread];
    out.logits[row * count + rank] = chosen_logits[thread];
  }
  if (thread == 0) {
    out.log_sum_exps[row] = top == kImpossible ? kImpossible : top + log(sums[0]);
    out.weight_sums[row] = weight_sums[0];
  }
}

}  // namespace

void FindLikelyTokens(const float* logits, const float* scales, int vocab, int rows,
                      const LikelyOutput& out, cudaStream_t stream) {
  Launch(FindLikely, dim3(rows), kThreads, 0, stream, logits, scales, vocab,
         LikelyTokenCount(vocab), out);
}

}  // namespace triptych::cuda
