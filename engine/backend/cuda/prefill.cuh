// Attention of prompts on tensor cores, for keys and values of any layout.
#ifndef TRIPTYCH_ENGINE_BACKEND_CUDA_PREFILL_CUH_
#define TRIPTYCH_ENGINE_BACKEND_CUDA_PREFILL_CUH_

#include "engine/backend/cuda/attention_kernels.h"
#include "engine/backend/cuda/device.cuh"
#include "engine/backend/cuda/online_softmax.cuh"
#include "engine/backend/cuda/scores.cuh"

namespace triptych::cuda {

// A thread block's part of the work: its warps, tiles of 16 rows in each, and positions of a tile
// of keys and values.
template <int W, int R, int T>
struct PrefillTiling {
  static constexpr int kWarps = W, kThreads = W * kWarp, kRowTiles = R, kRows = W * R * 16;
  static constexpr int kTile = T;
  // With one tile of rows, a warp has its queries in registers.
  static constexpr bool kSharedQueries = R > 1;

  template <int K, int V>
  static constexpr int64_t SharedBytes() {
    constexpr int kPad = 8;
    return (2 * T * (K + V + 2 * kPad) + (kSharedQueries ? kRows * (K + kPad) : 0)) *
           int64_t{sizeof(BFloat16)};
  }
};
using NarrowTiling = PrefillTiling<8, 1, 64>;
// Reads keys and values half as often, in half as many thread blocks.
using WideTiling = PrefillTiling<8, 2, 64>;

// Calls function.operator()<Tiling>() with the tiling for `rows` rows of a run, `heads` heads or
// groups and `runs` runs: the wide one if it occupies the device and fits. Both give the same bits.
template <int K, int V, typename Function>
void ForTiling(int rows, int heads, int runs, const Function& function) {
  const DeviceLimits limits = CurrentLimits();
  const int blocks = (rows + WideTiling::kRows - 1) / WideTiling::kRows * heads * runs;
  if (blocks >= limits.multiprocessors && WideTiling::SharedBytes<K, V>() <= limits.shared_bytes) {
    function.template operator()<WideTiling>();
  } else {
    function.template operator()<NarrowTiling>();
  }
}

// Raises a kernel's limit of shared memory to what a tiling needs, if the device has it.
template <int K, int V, typename Tiling, typename Kernel>
void AllowTiling(Kernel kernel) {
  constexpr int64_t kBytes = Tiling::template SharedBytes<K, V>();
  if (kBytes <= CurrentLimits().shared_bytes) AllowShared(kernel, kBytes);
}

// Attends a block's rows of a run. Rows are the run's positions times `shared` heads, which have
// the same keys and values. K: width of a key. V: width of a value. Tiles of keys lie at multiples
// of their size from position 0, wherever the run starts. Grid: x counts the blocks of rows.
// kPlain: `rule` is plain. A window's tiles begin with that of the first position that the block's
// rows attend; no position before it is read. Tiles that a row does not attend do not change its
// bits.
//
// `Source` has
//   const BFloat16* Key(int position, int column), Value(position, column): 8 elements
//   const BFloat16* Query(int index, int head, int column): 8 elements; `index`: in the run
//   BFloat16* Out(int index, int head): V elements
//   int first, limit: the positions to attend now, multiples of a tile
//   float* State(int index, int head): what passes over [first, limit) hand on to the next,
//     kPrefillState<V> elements. Cutting a context into passes does not change a bit.
template <int K, int V, typename Tiling, bool kPlain, typename Source>
__device__ void AttendPrompt(const Source& source, const PrefillRun& run, int shared,
                             const ScoreRule& rule) {
  constexpr int kPad = 8;  // elements after a row in shared memory, against bank conflicts
  constexpr int kKeyPitch = K + kPad, kValuePitch = V + kPad, kTile = Tiling::kTile;
  constexpr int kEights = kTile / 8, kChunks = (K + V) / 8, kRowTiles = Tiling::kRowTiles;
  constexpr bool kSharedQueries = Tiling::kSharedQueries;
  BFloat16* const keys = reinterpret_cast<BFloat16*>(DynamicShared());  // [2][kTile][kKeyPitch]
  BFloat16* const values = keys + 2 * kTile * kKeyPitch;                // [2][kTile][kValuePitch]
  BFloat16* const queries = values + 2 * kTile * kValuePitch;           // [kRows][kKeyPitch]
  const int rows = run.count * shared;
  const int row0 = static_cast<int>(gridDim.x - 1 - blockIdx.x) * Tiling::kRows;  // long ones first
  if (row0 >= rows) return;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, r = lane / 4, t = lane % 4;
  const int last = min(row0 + Tiling::kRows, rows) - 1;
  const int end = run.start + last / shared + 1;  // of the keys that some row attends
  const int stop = min(end, source.limit);
  if (end <= source.first) return;  // done by an earlier pass
  const int attended = kPlain ? 0 : FirstAttended(run.start + row0 / shared + 1, rule.window);
  const int begin = kPlain ? source.first : max(source.first, attended / kTile * kTile);
  const auto fetch = [&](int base, int buffer) {
    for (int i = threadIdx.x; i < kTile * kChunks; i += Tiling::kThreads) {
      const int of_tile = i / kChunks, c = i % kChunks, row = buffer * kTile + of_tile;
      const bool seen = base + of_tile < stop && (kPlain || base + of_tile >= attended);
      const int position = seen ? base + of_tile : kPlain ? base : max(base, attended);
      if (c < K / 8) {
        CopyAsync(keys + row * kKeyPitch + c * 8, source.Key(position, c * 8), seen);
      } else {
        const int column = (c - K / 8) * 8;
        CopyAsync(values + row * kValuePitch + column, source.Value(position, column), seen);
      }
    }
    CommitCopies();
  };
  if constexpr (kSharedQueries) {
    for (int i = threadIdx.x; i < Tiling::kRows * K / 8; i += Tiling::kThreads) {
      const int of_block = i / (K / 8), c = i % (K / 8), row = min(row0 + of_block, rows - 1);
      CopyAsync(queries + of_block * kKeyPitch + c * 8,
                source.Query(row / shared, row % shared, c * 8), true);
    }
  }
  fetch(begin, 0);
  const int warp_row0 = row0 + warp * 16 * kRowTiles;
  const auto row_of = [&](int tile, int i) { return warp_row0 + tile * 16 + r + 8 * i; };
  const auto index_of = [&](int tile, int i) { return min(row_of(tile, i), rows - 1) / shared; };
  const auto head_of = [&](int tile, int i) { return min(row_of(tile, i), rows - 1) % shared; };
  uint32_t q[kSharedQueries ? 1 : K / 16][4];
  if constexpr (!kSharedQueries) {
#pragma unroll
    for (int k = 0; k < K / 16; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        q[k][i] = *reinterpret_cast<const uint32_t*>(
            source.Query(index_of(0, i % 2), head_of(0, i % 2), k * 16 + i / 2 * 8) + t * 2);
      }
    }
  }
  OnlineSoftmax<V> softmax[kRowTiles];
  if (source.first > 0) {
#pragma unroll
    for (int j = 0; j < kRowTiles; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float* const from = source.State(index_of(j, i), head_of(j, i));
        softmax[j].most[i] = from[V + 2 * t], softmax[j].sums[i] = from[V + 2 * t + 1];
#pragma unroll
        for (int n = 0; n < V / 8; ++n) {
          softmax[j].values[n][2 * i] = from[n * 8 + t * 2];
          softmax[j].values[n][2 * i + 1] = from[n * 8 + t * 2 + 1];
        }
      }
    }
  }
  // The last position that the first and the last row of the warp attend; none without rows.
  const int warp_first = run.start + warp_row0 / shared;
  const int warp_last =
      warp_row0 < rows ? run.start + min(warp_row0 + 16 * kRowTiles - 1, rows - 1) / shared : -1;
  int buffer = 0;
  for (int base = begin; base < stop; base += kTile, buffer ^= 1) {
    if (base + kTile < stop) {
      fetch(base + kTile, buffer ^ 1);
      WaitForCopies<1>();
    } else {
      WaitForCopies<0>();
    }
    __syncthreads();
    if (base <= warp_last &&
        (kPlain || base + kTile > FirstAttended(warp_first + 1, rule.window))) {
      const BFloat16* const tile = keys + buffer * kTile * kKeyPitch;
      float s[kRowTiles][kEights][4] = {};
#pragma unroll
      for (int k = 0; k < K / 16; ++k) {
        uint32_t a[kRowTiles][4];
#pragma unroll
        for (int j = 0; j < kRowTiles; ++j) {
          if constexpr (kSharedQueries) {
            LoadTiles(a[j], queries + (warp * 16 * kRowTiles + j * 16 + lane % 16) * kKeyPitch +
                                k * 16 + (lane / 16) * 8);
          } else {
#pragma unroll
            for (int i = 0; i < 4; ++i) a[j][i] = q[k][i];
          }
        }
#pragma unroll
        for (int n = 0; n < kEights; n += 2) {
          uint32_t b[4];
          LoadTiles(b, tile + (n * 8 + (lane / 16) * 8 + lane % 8) * kKeyPitch + k * 16 +
                           (lane / 8 % 2) * 8);
#pragma unroll
          for (int j = 0; j < kRowTiles; ++j) {
            Mma(s[j][n], a[j], b[0], b[1]);
            Mma(s[j][n + 1], a[j], b[2], b[3]);
          }
        }
      }
      const bool masked = base + kTile - 1 > warp_first ||
                          (!kPlain && base < FirstAttended(warp_last + 1, rule.window));
#pragma unroll
      for (int j = 0; j < kRowTiles; ++j) {
        if constexpr (!kPlain) {
          if (rule.inside > 0) {
#pragma unroll
            for (int n = 0; n < kEights; ++n) {
#pragma unroll
              for (int i = 0; i < 4; ++i) s[j][n][i] = tanhf(s[j][n][i] * rule.inside);
            }
          }
        }
        if (masked) {
#pragma unroll
          for (int n = 0; n < kEights; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              const int position = base + n * 8 + t * 2 + (i & 1);
              const int own = run.start + index_of(j, i / 2);
              if (position > own || (!kPlain && position < FirstAttended(own + 1, rule.window))) {
                s[j][n][i] = -INFINITY;
              }
            }
          }
        }
        softmax[j].template Weigh<!kPlain>(s[j], rule.scale_log2);
      }
      const BFloat16* const v = values + buffer * kTile * kValuePitch;
#pragma unroll
      for (int k = 0; k < kEights / 2; ++k) {
        uint32_t a[kRowTiles][4];
#pragma unroll
        for (int j = 0; j < kRowTiles; ++j) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float* const pair = s[j][2 * k + i / 2] + i % 2 * 2;
            a[j][i] = Pack(pair[0], pair[1]);
          }
        }
#pragma unroll
        for (int n = 0; n < V / 8; n += 2) {
          uint32_t b[4];
          LoadTilesTransposed(b, v + (k * 16 + lane % 16) * kValuePitch + n * 8 + (lane / 16) * 8);
#pragma unroll
          for (int j = 0; j < kRowTiles; ++j) {
            Mma(softmax[j].values[n], a[j], b[0], b[1]);
            Mma(softmax[j].values[n + 1], a[j], b[2], b[3]);
          }
        }
      }
    }
    __syncthreads();
  }
  const bool done = stop == end;
#pragma unroll
  for (int j = 0; j < kRowTiles; ++j) {
    if (done) softmax[j].Finish();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (row_of(j, i) >= rows) continue;
      if (done) {
        BFloat16* const out = source.Out(index_of(j, i), head_of(j, i));
#pragma unroll
        for (int n = 0; n < V / 8; ++n) {
          *reinterpret_cast<uint32_t*>(out + n * 8 + t * 2) =
              Pack(softmax[j].values[n][2 * i] / softmax[j].sums[i],
                   softmax[j].values[n][2 * i + 1] / softmax[j].sums[i]);
        }
      } else {
        float* const to = source.State(index_of(j, i), head_of(j, i));
        to[V + 2 * t] = softmax[j].most[i], to[V + 2 * t + 1] = softmax[j].sums[i];
#pragma unroll
        for (int n = 0; n < V / 8; ++n) {
          to[n * 8 + t * 2] = softmax[j].values[n][2 * i];
          to[n * 8 + t * 2 + 1] = softmax[j].values[n][2 * i + 1];
        }
      }
    }
  }
}

}  // namespace triptych::cuda

#endif  // TRIPTYCH_ENGINE_BACKEND_CUDA_PREFILL_CUH_
