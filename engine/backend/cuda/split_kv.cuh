// Split of a context over thread blocks, and combination of the partial results.
#ifndef TRIPTYCH_ENGINE_BACKEND_CUDA_SPLIT_KV_CUH_
#define TRIPTYCH_ENGINE_BACKEND_CUDA_SPLIT_KV_CUH_

#include "engine/backend/cuda/attention_kernels.h"
#include "engine/backend/cuda/device.cuh"
#include "engine/backend/cuda/scores.cuh"

namespace triptych::cuda {

constexpr int kBlockPositions = 16;  // positions of a cache block in kernels on tensor cores

// Positions and number of splits as functions of the context's length. Short contexts are cut
// finer, so that a single sequence occupies the whole device. The count is not monotonic, so
// launches are sized for lengths rounded up to a power of two: no shorter length has more splits.
struct SplitSizes {
  int smallest;
  int largest;  // smallest times a power of two

  __host__ __device__ int Size(int length) const {
    int size = smallest;
    while (size < largest && length > 8 * size) size *= 2;
    return size;
  }
  __host__ __device__ int Count(int length) const {
    const int size = Size(length);
    return (length - 1 + size) / size;
  }
};

// Where the splits of the row at position length - 1 begin: at the cache block of the first
// position that it attends.
__host__ __device__ inline int SplitsStart(int length, int window) {
  return FirstAttended(length, window) / kBlockPositions * kBlockPositions;
}

// Never split: for prompts, whose many rows occupy the device.
constexpr SplitSizes kWhole{1 << 30, 1 << 30};

// Combines the splits of each row in order. Rows at position -1 become 0.
void CombineSplits(const AttentionLayout& layout, const AttentionRows& rows, const Splits& splits,
                   SplitSizes sizes, cudaStream_t stream);

}  // namespace triptych::cuda

#endif  // TRIPTYCH_ENGINE_BACKEND_CUDA_SPLIT_KV_CUH_
