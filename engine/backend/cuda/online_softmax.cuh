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

  // Turns scores of `kTiles` tiles of eight positions, which `scale` takes to base 2, into weights.
  // Scores of -inf weigh nothing. Unless kMaskedTiles, a row's first tile has a finite score; with
  // it, tiles without one change nothing. REQUIRES: scale > 0.
  template <bool kMaskedTiles = false, int kTiles>
  __device__ void Weigh(float (&scores)[kTiles][4], float scale) {
    float mine[2] = {-INFINITY, -INFINITY}, reference[2];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) mine[i / 2] = fmaxf(mine[i / 2], scores[n][i]);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float raised = fmaxf(most[i], mine[i] * scale);
      raised = fmaxf(raised, __shfl_xor_sync(kAllLanes, raised, 1));
      raised = fmaxf(raised, __shfl_xor_sync(kAllLanes, raised, 2));
      reference[i] = kMaskedTiles && raised == -INFINITY ? 0 : raised;
      const float fade = Exp2(most[i] - reference[i]);  // 0 for the first scores
      most[i] = raised;
      sums[i] *= fade;
#pragma unroll
      for (int j = 0; j < V / 8; ++j) values[j][2 * i] *= fade, values[j][2 * i + 1] *= fade;
    }
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores[n][i] = Exp2(fmaf(scores[n][i], scale, -reference[i / 2]));
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
