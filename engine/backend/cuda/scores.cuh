// Soft caps and sliding windows of attention's scores
// (engine/definitions.md#sliding-windows-and-soft-caps).
#ifndef TRIPTYCH_ENGINE_BACKEND_CUDA_SCORES_CUH_
#define TRIPTYCH_ENGINE_BACKEND_CUDA_SCORES_CUH_

#include "engine/backend/cuda/attention_kernels.h"
#include "engine/backend/cuda/device.cuh"

namespace triptych::cuda {

constexpr float kLog2E = 1.4426950408889634f;  // scores are kept in base 2

// The way from the product of a query and a key to a score in base 2. Kernels on tensor cores are
// compiled for plain rules, of which they read only `scale_log2`, and for all others.
struct ScoreRule {
  float scale_log2;  // of the product, or of its tanh
  float inside = 0;  // factor of the product inside the tanh; 0: no cap
  int window = kEveryPosition;

  bool plain() const { return inside == 0 && window == kEveryPosition; }
};

inline ScoreRule RuleOf(const AttentionRows& rows) {
  if (rows.cap > 0) return {rows.cap * kLog2E, rows.scale / rows.cap, rows.window};
  return {rows.scale * kLog2E, 0, rows.window};
}

// The first position that the row at position length - 1 attends.
__host__ __device__ inline int FirstAttended(int length, int window) {
  return length > window ? length - window : 0;
}

}  // namespace triptych::cuda

#endif  // TRIPTYCH_ENGINE_BACKEND_CUDA_SCORES_CUH_
