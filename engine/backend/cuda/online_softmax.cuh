// A softmax in registers over scores that arrive tile by tile.
#ifndef TRIPTYCH_ENGINE_BACKEND_CUDA_ONLINE_SOFTMAX_CUH_
#define TRIPTYCH_ENGINE_BACKEND_CUDA_ONLINE_SOFTMAX_CUH_

#include "engine/backend/cuda/device.cuh"

namespace triptych::cuda {

// Two rows of a tile of Mma, each shared by four lanes.
template <int V>
struct OnlineSoftmax {
  float most[2] = {-INFINITY, -INFINITY};  // of the scores so far, in base 2
  float sums[2] = {0, 0};                  // of the lane's own weights, relative to `most`
  float values[V / 8][4] = {};             // [columns in eights]: values times weights

  // Raises `most` to that of the rows' new scores; `mine` are the lane's maxima. A row's first
  // score must not be -inf.
  __device__ void Raise(const float (&mine)[2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float raised = fmaxf(most[i], mine[i]);
      raised = fmaxf(raised, __shfl_xor_sync(kAllLanes, raised, 1));
      raised = fmaxf(raised, __shfl_xor_sync(kAllLanes, raised, 2));
      const float fade = exp2f(most[i] - raised);  // 0 for the first scores
      most[i] = raised;
      sums[i] *= fade;
#pragma unroll
      for (int j = 0; j < V / 8; ++j) values[j][2 * i] *= fade, values[j][2 * i + 1] *= fade;
    }
  }
  // Turns scores of `kTiles` tiles of eight positions into weights.
  template <int kTiles>
  __device__ void Weigh(float (&scores)[kTiles][4]) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores[n][i] = exp2f(scores[n][i] - most[i / 2]);
        sums[i / 2] += scores[n][i];
      }
    }
  }
  // Adds up the sums of the four lanes.
  __device__ void Finish() {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sums[i] += __shfl_xor_sync(kAllLanes, sums[i], 1);
      sums[i] += __shfl_xor_sync(kAllLanes, sums[i], 2);
    }
  }
};

}  // namespace triptych::cuda

#endif  // TRIPTYCH_ENGINE_BACKEND_CUDA_ONLINE_SOFTMAX_CUH_
