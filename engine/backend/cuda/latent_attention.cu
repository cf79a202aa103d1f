#include <type_traits>

#include "engine/backend/cuda/split_kv.cuh"

namespace triptych::cuda {
namespace {

constexpr SplitSizes kSizes{128, 512};
constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kPad = 8;

struct Parameters {
  AttentionRows rows;
  Splits splits;
  SplitSizes sizes;
  int heads;
  int normed_keys;
  float scale_log2;
};

// R: latent rank. P: rotated elements after it. M: groups of 16 heads in a thread block. T:
// positions of a tile. Shared memory holds two tiles.
template <int R, int P, int M, int T>
struct Shape {
  static constexpr int kWidth = R + P, kPitch = kWidth + kPad, kRows = 16 * M;
  static constexpr int kScorePitch = T + 4, kWeightPitch = T + kPad;
  static constexpr int64_t kSharedBytes =
      2 * T * kPitch * sizeof(BFloat16) + 4 * kRows * kScorePitch * sizeof(float) +
      kRows * kWeightPitch * sizeof(BFloat16) + kRows * sizeof(float);
};

// Grid (splits, heads / kRows, rows). For scores a warp has a quarter of the width and half of a
// tile's positions, with its part of the queries in registers; for values it has R / 8 columns.
template <int R, int P, int M, int T, bool kNormed>
__global__ void __launch_bounds__(kThreads, 1) Attend(Parameters p) {
  using S = Shape<R, P, M, T>;
  constexpr int kWidth = S::kWidth, kPitch = S::kPitch, kRows = S::kRows;
  constexpr int kScorePitch = S::kScorePitch, kWeightPitch = S::kWeightPitch;
  constexpr int kSteps = kWidth / 4 / 16;
  constexpr int kEights = T / 2 / 8;  // tiles of 8 positions in a warp's half
  BFloat16* const tiles = reinterpret_cast<BFloat16*>(DynamicShared());    // [2][T][kPitch]
  float* const scores = reinterpret_cast<float*>(tiles + 2 * T * kPitch);  // [4][kRows][..]
  BFloat16* const weights = reinterpret_cast<BFloat16*>(scores + 4 * kRows * kScorePitch);
  float* const fades = reinterpret_cast<float*>(weights + kRows * kWeightPitch);  // [kRows]
  const int split = blockIdx.x, first_head = blockIdx.y * kRows;
  const size_t row = blockIdx.z;
  const int length = p.rows.positions[row] + 1, split_size = p.sizes.Size(length);
  const int64_t first_of_all = static_cast<int64_t>(split) * split_size;
  if (first_of_all >= length) return;
  const int first = static_cast<int>(first_of_all), end = min(split_size, length - first) + first;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, r = lane / 4, t = lane % 4;
  const int quarter = warp % 4, half = warp / 4;
  const int32_t* const table = p.rows.blocks + p.rows.tables[row];
  const auto fetch = [&](int base, int buffer) {
    for (int i = threadIdx.x; i < T * (kWidth / 8); i += kThreads) {
      const int of_tile = i / (kWidth / 8), c = i % (kWidth / 8), position = base + of_tile;
      const bool seen = position < end;
      const int block = seen ? table[position / kBlockPositions] : 0;
      CopyAsync(
          tiles + (buffer * T + of_tile) * kPitch + c * 8,
          p.rows.cache +
              (static_cast<size_t>(block) * kBlockPositions + position % kBlockPositions) * kWidth +
              c * 8,
          seen);
    }
    CommitCopies();
  };
  fetch(first, 0);
  BFloat16* const staged = tiles + T * kPitch;  // the second buffer, not yet in use
  for (int i = threadIdx.x; i < kRows * (kWidth / 8); i += kThreads) {
    const int head = i / (kWidth / 8), c = i % (kWidth / 8);
    *reinterpret_cast<uint4*>(staged + head * kPitch + c * 8) = *reinterpret_cast<const uint4*>(
        p.rows.queries + (row * p.heads + first_head + head) * kWidth + c * 8);
  }
  __syncthreads();
  uint32_t q[M][kSteps][4];
#pragma unroll
  for (int i = 0; i < M; ++i) {
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      LoadTiles(q[i][k], staged + (i * 16 + lane % 16) * kPitch + quarter * (kWidth / 4) + k * 16 +
                             (lane / 16) * 8);
    }
  }
  __syncthreads();
  constexpr int kColumns = R / kWarps, kN = kColumns / 8;
  float o[M][kN][4] = {};
  // Softmax: kRowsOfWarp rows per warp, kLanes lanes per row.
  constexpr int kRowsOfWarp = kRows / kWarps, kLanes = kWarp / kRowsOfWarp, kEach = T / kLanes;
  const int my_row = warp * kRowsOfWarp + lane / kLanes, my_first = (lane % kLanes) * kEach;
  float m = -INFINITY, l = 0;
  int buffer = 0;
  for (int base = first; base < end; base += T, buffer ^= 1) {
    if (base + T < end) {
      fetch(base + T, buffer ^ 1);
      WaitForCopies<1>();
    } else {
      WaitForCopies<0>();
    }
    __syncthreads();
    const BFloat16* const tile = tiles + buffer * T * kPitch;
    float s[M][kEights][4] = {};
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
#pragma unroll
      for (int n = 0; n < kEights; n += 2) {
        uint32_t b[4];
        LoadTiles(b, tile + (half * (T / 2) + n * 8 + (lane / 16) * 8 + lane % 8) * kPitch +
                         quarter * (kWidth / 4) + k * 16 + (lane / 8 % 2) * 8);
#pragma unroll
        for (int i = 0; i < M; ++i) {
          Mma(s[i][n], q[i][k], b[0], b[1]);
          Mma(s[i][n + 1], q[i][k], b[2], b[3]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < M; ++i) {
#pragma unroll
      for (int n = 0; n < kEights; ++n) {
#pragma unroll
        for (int c = 0; c < 4; c += 2) {
          *reinterpret_cast<float2*>(
              scores + (quarter * kRows + i * 16 + r + 8 * (c / 2)) * kScorePitch + half * (T / 2) +
              n * 8 + t * 2) = make_float2(s[i][n][c], s[i][n][c + 1]);
        }
      }
    }
    __syncthreads();
    float x[kEach], most = m;
    using Vector = std::conditional_t<kEach % 4 == 0, float4, float2>;
    constexpr int kVector = sizeof(Vector) / sizeof(float);
#pragma unroll
    for (int e = 0; e < kEach; e += kVector) {
      const float* const from = scores + my_row * kScorePitch + my_first + e;
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        const Vector v = *reinterpret_cast<const Vector*>(from + part * kRows * kScorePitch);
        const float* const elements = reinterpret_cast<const float*>(&v);
#pragma unroll
        for (int i = 0; i < kVector; ++i)
          x[e + i] = part == 0 ? elements[i] : x[e + i] + elements[i];
      }
    }
    if constexpr (kNormed) {
      // The thread's positions are in one block; those beyond the end have no score.
      if (base + my_first < end) {
        const int of_head = (first_head + my_row) % p.normed_keys;
        const size_t block = table[(base + my_first) / kBlockPositions];
        const float* const norms = p.rows.inverse_norms +
                                   (block * p.normed_keys + of_head) * kBlockPositions +
                                   (base + my_first) % kBlockPositions;
#pragma unroll
        for (int e = 0; e < kEach; ++e) x[e] *= norms[e];
      }
    }
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      x[e] = base + my_first + e < end ? x[e] * p.scale_log2 : -INFINITY;
      most = fmaxf(most, x[e]);
    }
#pragma unroll
    for (int d = kLanes / 2; d > 0; d /= 2) {
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, d));
    }
    const float fade = exp2f(m - most);
    m = most;
    l *= fade;
#pragma unroll
    for (int e = 0; e < kEach; e += 2) {
      const float a = exp2f(x[e] - m), b = exp2f(x[e + 1] - m);
      l += a + b;
      *reinterpret_cast<uint32_t*>(weights + my_row * kWeightPitch + my_first + e) = Pack(a, b);
    }
    if (lane % kLanes == 0) fades[my_row] = fade;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < M; ++i) {
      const float f0 = fades[i * 16 + r], f1 = fades[i * 16 + r + 8];
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        o[i][n][0] *= f0, o[i][n][1] *= f0;
        o[i][n][2] *= f1, o[i][n][3] *= f1;
      }
    }
#pragma unroll
    for (int k = 0; k < T / 16; ++k) {
      uint32_t a[M][4];
#pragma unroll
      for (int i = 0; i < M; ++i) {
        LoadTiles(a[i], weights + (i * 16 + lane % 16) * kWeightPitch + k * 16 + (lane / 16) * 8);
      }
#pragma unroll
      for (int n = 0; n < kN; n += 2) {
        uint32_t b[4];
        LoadTilesTransposed(
            b, tile + (k * 16 + lane % 16) * kPitch + warp * kColumns + n * 8 + (lane / 16) * 8);
#pragma unroll
        for (int i = 0; i < M; ++i) {
          Mma(o[i][n], a[i], b[0], b[1]);
          Mma(o[i][n + 1], a[i], b[2], b[3]);
        }
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int d = kLanes / 2; d > 0; d /= 2) l += __shfl_xor_sync(kAllLanes, l, d);
  const auto at = [&](int head) {
    return (row * p.heads + first_head + head) * p.splits.most + split;
  };
  if (lane % kLanes == 0) p.splits.stats[at(my_row)] = make_float2(m, l);
#pragma unroll
  for (int i = 0; i < M; ++i) {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int c = 0; c < 4; c += 2) {
        float* const to =
            p.splits.sums + at(i * 16 + r + 8 * (c / 2)) * R + warp * kColumns + n * 8 + t * 2;
        *reinterpret_cast<float2*>(to) = make_float2(o[i][n][c], o[i][n][c + 1]);
      }
    }
  }
}

// Tiles of 64 positions if they fit (data-center GPUs from Hopper on), else of 32.
template <int R, int P, int M, bool kNormed, typename Function>
void ForTile(const Function& function) {
  if (Shape<R, P, M, 64>::kSharedBytes <= CurrentLimits().shared_bytes) {
    function(Attend<R, P, M, 64, kNormed>, Shape<R, P, M, 64>::kSharedBytes);
  } else {
    function(Attend<R, P, M, 32, kNormed>, Shape<R, P, M, 32>::kSharedBytes);
  }
}

// Calls function(kernel, shared bytes, heads of a thread block) with the kernel for these widths.
template <bool kNormed, typename Function>
void ForKernel(int rank, bool many_heads, const Function& function) {
  const auto heads16 = [&](auto kernel, size_t bytes) { function(kernel, bytes, 16); };
  const auto heads32 = [&](auto kernel, size_t bytes) { function(kernel, bytes, 32); };
  if (rank == 512) {
    many_heads ? ForTile<512, 64, 2, kNormed>(heads32) : ForTile<512, 64, 1, kNormed>(heads16);
  } else {
    many_heads ? ForTile<256, 64, 2, kNormed>(heads32) : ForTile<256, 64, 1, kNormed>(heads16);
  }
}

}  // namespace

bool SupportsLatentAttention(const AttentionLayout& layout) {
  const int rank = layout.value_width;
  return layout.groups == 1 && layout.value_offset == 0 && (rank == 512 || rank == 256) &&
         layout.key_width == rank + 64 && layout.row_width == layout.key_width &&
         layout.block_positions == kBlockPositions && layout.heads % 16 == 0;
}

int LatentSplits(int length) { return kSizes.Count(length); }

void LatentAttention(const AttentionLayout& layout, const AttentionRows& rows, const Splits& splits,
                     bool prefill, cudaStream_t stream) {
  const SplitSizes sizes = prefill ? kWhole : kSizes;
  const Parameters parameters{.rows = rows,
                              .splits = splits,
                              .sizes = sizes,
                              .heads = layout.heads,
                              .normed_keys = layout.normed_keys,
                              .scale_log2 = rows.scale * kLog2E};
  const auto launch = [&](auto kernel, size_t shared_bytes, int heads) {
    Launch(kernel, dim3(splits.most, layout.heads / heads, rows.rows), kThreads, shared_bytes,
           stream, parameters);
  };
  const bool many_heads = layout.heads % 32 == 0;
  layout.normed_keys > 0 ? ForKernel<true>(layout.value_width, many_heads, launch)
                         : ForKernel<false>(layout.value_width, many_heads, launch);
  CombineSplits(layout, rows, splits, sizes, stream);
}

void PrepareLatentAttention() {
  for (const int rank : {256, 512}) {
    for (const bool many_heads : {false, true}) {
      const auto allow = [](auto kernel, size_t shared_bytes, int) {
        AllowShared(kernel, shared_bytes);
      };
      ForKernel<false>(rank, many_heads, allow);
      ForKernel<true>(rank, many_heads, allow);
    }
  }
}

}  // namespace triptych::cuda
