// Attention of prompts on tensor cores, for keys and values of any layout.
#ifndef TRIPTYCH_ENGINE_BACKEND_CUDA_PREFILL_CUH_
#define TRIPTYCH_ENGINE_BACKEND_CUDA_PREFILL_CUH_

#include "engine/backend/cuda/attention_kernels.h"
#include "engine/backend/cuda/device.cuh"
#include "engine/backend/cuda/online_softmax.cuh"

namespace triptych::cuda {

constexpr int kPrefillWarps = 8;  // of a block, each with 16 rows
constexpr int kPrefillThreads = kPrefillWarps * kWarp;
constexpr int kPrefillRows = 16 * kPrefillWarps;
constexpr int kPrefillPad = 8;  // elements after a row in shared memory, against bank conflicts

template <int K, int V>
constexpr size_t PrefillSharedBytes() {
  return 2 * kPrefillTile * (K + V + 2 * kPrefillPad) * sizeof(BFloat16);
}

// Attends a block's rows of a run. Rows are the run's positions times `shared` heads, which have
// the same keys and values. K: width of a key. V: width of a value. Tiles of keys lie at multiples
// of kPrefillTile from position 0, wherever the run starts. Grid: x counts tiles of rows.
//
// `Source` has
//   const BFloat16* Key(int position, int column), Value(position, column): 8 elements
//   const BFloat16* Query(int index, int head, int column): 2 elements; `index`: in the run
//   BFloat16* Out(int index, int head): V elements
//   int first, limit: the positions to attend now, multiples of kPrefillTile
//   float* State(int index, int head): what passes over [first, limit) hand on to the next,
//     kPrefillState<V> elements. Cutting a context into passes does not change a bit.
template <int K, int V, typename Source>
__device__ void AttendPrompt(const Source& source, const PrefillRun& run, int shared,
                             float scale_log2) {
  constexpr int kKeyPitch = K + kPrefillPad, kValuePitch = V + kPrefillPad;
  constexpr int kEights = kPrefillTile / 8, kChunks = (K + V) / 8;
  BFloat16* const keys = reinterpret_cast<BFloat16*>(DynamicShared());  // [2][tile][kKeyPitch]
  BFloat16* const values = keys + 2 * kPrefillTile * kKeyPitch;         // [2][tile][kValuePitch]
  const int rows = run.count * shared;
  const int row0 = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kPrefillRows;  // long ones first
  if (row0 >= rows) return;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, r = lane / 4, t = lane % 4;
  const int last = min(row0 + kPrefillRows, rows) - 1;
  const int end = run.start + last / shared + 1;  // of the keys that some row attends
  const int stop = min(end, source.limit);
  if (end <= source.first) return;  // done by an earlier pass
  const auto fetch = [&](int base, int buffer) {
    for (int i = threadIdx.x; i < kPrefillTile * kChunks; i += kPrefillThreads) {
      const int of_tile = i / kChunks, c = i % kChunks, row = buffer * kPrefillTile + of_tile;
      const bool seen = base + of_tile < stop;
      const int position = seen ? base + of_tile : base;
      if (c < K / 8) {
        CopyAsync(keys + row * kKeyPitch + c * 8, source.Key(position, c * 8), seen);
      } else {
        const int column = (c - K / 8) * 8;
        CopyAsync(values + row * kValuePitch + column, source.Value(position, column), seen);
      }
    }
    CommitCopies();
  };
  fetch(source.first, 0);
  const int mine[2] = {row0 + warp * 16 + r, row0 + warp * 16 + r + 8};
  int index[2], head[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = min(mine[i], rows - 1);
    index[i] = row / shared, head[i] = row % shared;
  }
  uint32_t q[K / 16][4];
#pragma unroll
  for (int k = 0; k < K / 16; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      q[k][i] = *reinterpret_cast<const uint32_t*>(
          source.Query(index[i % 2], head[i % 2], k * 16 + t * 2 + i / 2 * 8));
    }
  }
  OnlineSoftmax<V> softmax;
  if (source.first > 0) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float* const from = source.State(index[i], head[i]);
      softmax.most[i] = from[V + 2 * t], softmax.sums[i] = from[V + 2 * t + 1];
#pragma unroll
      for (int n = 0; n < V / 8; ++n) {
        softmax.values[n][2 * i] = from[n * 8 + t * 2];
        softmax.values[n][2 * i + 1] = from[n * 8 + t * 2 + 1];
      }
    }
  }
  // The last position that the first and the last row of the warp attend.
  const int warp_first = run.start + min(row0 + warp * 16, rows - 1) / shared;
  const int warp_last = run.start + min(row0 + warp * 16 + 15, rows - 1) / shared;
  int buffer = 0;
  for (int base = source.first; base < stop; base += kPrefillTile, buffer ^= 1) {
    if (base + kPrefillTile < stop) {
      fetch(base + kPrefillTile, buffer ^ 1);
      WaitForCopies<1>();
    } else {
      WaitForCopies<0>();
    }
    __syncthreads();
    if (base <= warp_last) {
      const BFloat16* const tile = keys + buffer * kPrefillTile * kKeyPitch;
      float s[kEights][4] = {};
#pragma unroll
      for (int k = 0; k < K / 16; ++k) {
#pragma unroll
        for (int n = 0; n < kEights; n += 2) {
          uint32_t b[4];
          LoadTiles(b, tile + (n * 8 + (lane / 16) * 8 + lane % 8) * kKeyPitch + k * 16 +
                           (lane / 8 % 2) * 8);
          Mma(s[n], q[k], b[0], b[1]);
          Mma(s[n + 1], q[k], b[2], b[3]);
        }
      }
      const bool masked = base + kPrefillTile - 1 > warp_first;
      float most[2] = {-INFINITY, -INFINITY};
#pragma unroll
      for (int n = 0; n < kEights; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const bool seen = !masked || base + n * 8 + t * 2 + (i & 1) <= run.start + index[i / 2];
          s[n][i] = seen ? s[n][i] * scale_log2 : -INFINITY;
          most[i / 2] = fmaxf(most[i / 2], s[n][i]);
        }
      }
      softmax.Raise(most);
      softmax.Weigh(s);
      const BFloat16* const v = values + buffer * kPrefillTile * kValuePitch;
#pragma unroll
      for (int k = 0; k < kEights / 2; ++k) {
        const uint32_t a[4] = {Pack(s[2 * k][0], s[2 * k][1]), Pack(s[2 * k][2], s[2 * k][3]),
                               Pack(s[2 * k + 1][0], s[2 * k + 1][1]),
                               Pack(s[2 * k + 1][2], s[2 * k + 1][3])};
#pragma unroll
        for (int n = 0; n < V / 8; n += 2) {
          uint32_t b[4];
          LoadTilesTransposed(b, v + (k * 16 + lane % 16) * kValuePitch + n * 8 + (lane / 16) * 8);
          Mma(softmax.values[n], a, b[0], b[1]);
          Mma(softmax.values[n + 1], a, b[2], b[3]);
        }
      }
    }
    __syncthreads();
  }
  const bool done = stop == end;
  if (done) softmax.Finish();
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (mine[i] >= rows) continue;
    if (done) {
      BFloat16* const out = source.Out(index[i], head[i]);
#pragma unroll
      for (int n = 0; n < V / 8; ++n) {
        *reinterpret_cast<uint32_t*>(out + n * 8 + t * 2) =
            Pack(softmax.values[n][2 * i] / softmax.sums[i],
                 softmax.values[n][2 * i + 1] / softmax.sums[i]);
      }
    } else {
      float* const to = source.State(index[i], head[i]);
      to[V + 2 * t] = softmax.most[i], to[V + 2 * t + 1] = softmax.sums[i];
#pragma unroll
      for (int n = 0; n < V / 8; ++n) {
        to[n * 8 + t * 2] = softmax.values[n][2 * i];
        to[n * 8 + t * 2 + 1] = softmax.values[n][2 * i + 1];
      }
    }
  }
}

}  // namespace triptych::cuda

#endif  // TRIPTYCH_ENGINE_BACKEND_CUDA_PREFILL_CUH_
