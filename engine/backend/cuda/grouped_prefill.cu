#include "engine/backend/cuda/split_kv.cuh"

namespace triptych::cuda {
namespace {

constexpr int kTile = 64;  // positions per tile of keys and values
constexpr int kWarps = 8;  // of a block, each with 16 rows
constexpr int kRows = 16 * kWarps;
constexpr int kPad = 8;  // elements after a row in shared memory, against bank conflicts

template <int D>
constexpr size_t SharedBytes() {
  return 2 * 2 * kTile * (D + kPad) * sizeof(BFloat16);
}

struct Parameters {
  AttentionLayout layout;
  AttentionRows rows;
  const PrefillRun* runs;
  float scale_log2;
};

// Grid (tiles of rows, G, runs); rows are a run's positions times the heads that share a group.
// Tiles of keys lie at multiples of kTile from position 0, wherever the run starts.
template <int D>
__global__ void __launch_bounds__(kWarps* kWarp) Attend(Parameters p) {
  constexpr int kPitch = D + kPad, kThreads = kWarps * kWarp;
  BFloat16* const keys = reinterpret_cast<BFloat16*>(DynamicShared());  // [2][kTile][kPitch]
  BFloat16* const values = keys + 2 * kTile * kPitch;                   // [2][kTile][kPitch]
  const PrefillRun run = p.runs[blockIdx.z];
  const int heads = p.layout.heads, groups = p.layout.groups, group = blockIdx.y;
  const int shared = heads / groups, rows = run.count * shared;
  const int row0 = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kRows;  // long ones first
  if (row0 >= rows) return;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, r = lane / 4, t = lane % 4;
  const int row_width = 2 * groups * D;
  const int32_t* const table = p.rows.blocks + run.table;
  const int last = min(row0 + kRows, rows) - 1;
  const int end = run.start + last / shared + 1;  // of the keys that some row attends
  const auto fetch = [&](int base, int buffer) {
    for (int i = threadIdx.x; i < kTile * 2 * D / 8; i += kThreads) {
      const int of_tile = i / (2 * D / 8), c = i % (2 * D / 8), position = base + of_tile;
      const bool seen = position < end, key = c < D / 8;
      const int column = (key ? c : c - D / 8) * 8;
      BFloat16* const to = (key ? keys : values) + (buffer * kTile + of_tile) * kPitch + column;
      const int block = seen ? table[position / kBlockPositions] : 0;
      const BFloat16* const from =
          p.rows.cache +
          (static_cast<size_t>(block) * kBlockPositions + position % kBlockPositions) * row_width +
          (key ? group : groups + group) * D + column;
      CopyAsync(to, from, seen);
    }
    CommitCopies();
  };
  fetch(0, 0);
  const int mine[2] = {row0 + warp * 16 + r, row0 + warp * 16 + r + 8};
  int sees[2];
  size_t at[2];  // offset of the query, and of its result
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = min(mine[i], rows - 1), query = row / shared;
    sees[i] = run.start + query;
    at[i] = (static_cast<size_t>(run.row + query) * heads + row % shared * groups + group) * D;
  }
  uint32_t q[D / 16][4];
#pragma unroll
  for (int k = 0; k < D / 16; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      q[k][i] = *reinterpret_cast<const uint32_t*>(p.rows.queries + at[i % 2] + k * 16 + t * 2 +
                                                   i / 2 * 8);
    }
  }
  // The last position that the first and the last row of the warp attend.
  const int warp_first = run.start + min(row0 + warp * 16, rows - 1) / shared;
  const int warp_last = run.start + min(row0 + warp * 16 + 15, rows - 1) / shared;
  float o[D / 8][4] = {}, m[2] = {-INFINITY, -INFINITY}, l[2] = {0, 0};
  int buffer = 0;
  for (int base = 0; base < end; base += kTile, buffer ^= 1) {
    if (base + kTile < end) {
      fetch(base + kTile, buffer ^ 1);
      WaitForCopies<1>();
    } else {
      WaitForCopies<0>();
    }
    __syncthreads();
    if (base <= warp_last) {
      const BFloat16* const tile = keys + buffer * kTile * kPitch;
      float s[8][4] = {};
#pragma unroll
      for (int k = 0; k < D / 16; ++k) {
#pragma unroll
        for (int n = 0; n < 8; n += 2) {
          uint32_t b[4];
          LoadTiles(b, tile + (n * 8 + (lane / 16) * 8 + lane % 8) * kPitch + k * 16 +
                           (lane / 8 % 2) * 8);
          Mma(s[n], q[k], b[0], b[1]);
          Mma(s[n + 1], q[k], b[2], b[3]);
        }
      }
      const bool masked = base + kTile - 1 > warp_first;
      float most[2] = {m[0], m[1]};
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const bool seen = !masked || base + n * 8 + t * 2 + (i & 1) <= sees[i / 2];
          s[n][i] = seen ? s[n][i] * p.scale_log2 : -INFINITY;
          most[i / 2] = fmaxf(most[i / 2], s[n][i]);
        }
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        most[i] = fmaxf(most[i], __shfl_xor_sync(kAllLanes, most[i], 1));
        most[i] = fmaxf(most[i], __shfl_xor_sync(kAllLanes, most[i], 2));
        const float fade = exp2f(m[i] - most[i]);
        m[i] = most[i];
        l[i] *= fade;
#pragma unroll
        for (int j = 0; j < D / 8; ++j) o[j][2 * i] *= fade, o[j][2 * i + 1] *= fade;
      }
      uint32_t a[4][4];
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          s[n][i] = exp2f(s[n][i] - m[i / 2]);
          l[i / 2] += s[n][i];
        }
        a[n / 2][n % 2 * 2] = Pack(s[n][0], s[n][1]);
        a[n / 2][n % 2 * 2 + 1] = Pack(s[n][2], s[n][3]);
      }
      const BFloat16* const v = values + buffer * kTile * kPitch;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
#pragma unroll
        for (int n = 0; n < D / 8; n += 2) {
          uint32_t b[4];
          LoadTilesTransposed(b, v + (k * 16 + lane % 16) * kPitch + n * 8 + (lane / 16) * 8);
          Mma(o[n], a[k], b[0], b[1]);
          Mma(o[n + 1], a[k], b[2], b[3]);
        }
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    l[i] += __shfl_xor_sync(kAllLanes, l[i], 1);
    l[i] += __shfl_xor_sync(kAllLanes, l[i], 2);
    if (mine[i] >= rows) continue;
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      *reinterpret_cast<uint32_t*>(p.rows.out + at[i] + n * 8 + t * 2) =
          Pack(o[n][2 * i] / l[i], o[n][2 * i + 1] / l[i]);
    }
  }
}

}  // namespace

bool SupportsGroupedPrefill(const AttentionLayout& layout) {
  const int width = layout.key_width;
  return (width == 64 || width == 128) && layout.value_width == width &&
         layout.value_offset == layout.groups * width &&
         layout.row_width == 2 * layout.groups * width && layout.block_positions == kBlockPositions;
}

void GroupedPrefill(const AttentionLayout& layout, const AttentionRows& rows,
                    const PrefillRuns& runs, cudaStream_t stream) {
  const int most_rows = runs.longest * (layout.heads / layout.groups);
  const dim3 grid((most_rows + kRows - 1) / kRows, layout.groups, runs.count);
  const Parameters parameters{layout, rows, runs.runs, rows.scale * kLog2E};
  if (layout.key_width == 64) {
    Launch(Attend<64>, grid, kWarps * kWarp, SharedBytes<64>(), stream, parameters);
  } else {
    Launch(Attend<128>, grid, kWarps * kWarp, SharedBytes<128>(), stream, parameters);
  }
}

void PrepareGroupedPrefill() {
  AllowShared(Attend<64>, SharedBytes<64>());
  AllowShared(Attend<128>, SharedBytes<128>());
}

}  // namespace triptych::cuda
