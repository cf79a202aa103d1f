#include <bit>
#include <cstdint>

#include "engine/backend/cuda/online_softmax.cuh"
#include "engine/backend/cuda/split_kv.cuh"

namespace triptych::cuda {
namespace {

constexpr SplitSizes kSizes{256, 512};
constexpr int kWarps = 4;
constexpr int kMostShared = 16;  // most heads of a group: the rows of a tile

struct Parameters {
  AttentionLayout layout;
  AttentionRows rows;
  Splits splits;
  SplitSizes sizes;
  ScoreRule rule;
};

// Grid (splits, G, rows). A warp takes every fourth cache block of its split. The heads of a group
// are the rows of a tile. K goes straight from memory into fragments, with the dimensions of Q and
// K permuted alike. So does V, whose positions are then combined in pairs.
//
// Three thread blocks per multiprocessor hide memory latency better than two.
template <int D, bool kPlain>
__global__ void __launch_bounds__(kWarps* kWarp, 3) Decode(Parameters p) {
  __shared__ float all_most[kWarps][16], all_sums[kWarps][16];
  __shared__ float whole[16][D + 4];
  const int split = blockIdx.x, group = blockIdx.y;
  const size_t row = blockIdx.z;
  const int length = p.rows.positions[row] + 1,
            start = kPlain ? 0 : SplitsStart(length, p.rule.window),
            split_size = p.sizes.Size(length - start), first = start + split * split_size;
  if (first >= length) return;
  const int end = min(first + split_size, length);
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, r = lane / 4, t = lane % 4;
  const int heads = p.layout.heads, groups = p.layout.groups, shared = heads / groups;
  const int row_width = 2 * groups * D;
  // Queries of the group's heads, h = j * G + g; beyond them the rows are zero.
  uint32_t q[D / 16][4];
#pragma unroll
  for (int c = 0; c < D / 32; ++c) {
    const BFloat16* const from = p.rows.queries + (row * heads + group) * D + c * 32 + t * 8;
    uint4 low = make_uint4(0, 0, 0, 0), high = low;
    if (r < shared) low = *reinterpret_cast<const uint4*>(from + r * groups * D);
    if (r + 8 < shared) high = *reinterpret_cast<const uint4*>(from + (r + 8) * groups * D);
    q[2 * c][0] = low.x, q[2 * c][1] = high.x, q[2 * c][2] = low.y, q[2 * c][3] = high.y;
    q[2 * c + 1][0] = low.z, q[2 * c + 1][1] = high.z;
    q[2 * c + 1][2] = low.w, q[2 * c + 1][3] = high.w;
  }
  OnlineSoftmax<D> softmax;
  const int32_t* const table = p.rows.blocks + p.rows.tables[row];
  constexpr int kStride = kWarps * kBlockPositions;
  const int begin = first + warp * kBlockPositions;
  int block = begin < end ? table[begin / kBlockPositions] : 0;
  for (int base = begin; base < end; base += kStride) {
    const BFloat16* const keys =
        p.rows.cache + static_cast<size_t>(block) * kBlockPositions * row_width + group * D;
    if (base + kStride < end) block = table[(base + kStride) / kBlockPositions];
    const BFloat16* const values = keys + groups * D;
    uint4 k[2][D / 32], v[D / 64][4];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int c = 0; c < D / 32; ++c) {
        k[n][c] = LoadOnce(keys + (n * 8 + r) * row_width + c * 32 + t * 8);
      }
    }
#pragma unroll
    for (int h = 0; h < D / 64; ++h) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        v[h][i] = LoadOnce(values + (t * 2 + (i & 1) + (i & 2) * 4) * row_width + h * 64 + r * 8);
      }
    }
    float s[2][4] = {};
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int c = 0; c < D / 32; ++c) {
        Mma(s[n], q[2 * c], k[n][c].x, k[n][c].y);
        Mma(s[n], q[2 * c + 1], k[n][c].z, k[n][c].w);
      }
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int position = base + n * 8 + t * 2 + (i & 1);
        if constexpr (!kPlain) {
          if (p.rule.inside > 0) s[n][i] = tanhf(s[n][i] * p.rule.inside);
          if (position < FirstAttended(length, p.rule.window)) s[n][i] = -INFINITY;
        }
        if (position >= end) s[n][i] = -INFINITY;
      }
    }
    softmax.Weigh(s, p.rule.scale_log2);
    const uint32_t a[4] = {Pack(s[0][0], s[0][1]), Pack(s[0][2], s[0][3]), Pack(s[1][0], s[1][1]),
                           Pack(s[1][2], s[1][3])};
    // Rows beyond the end may hold any value. NaN times a weight of 0 would still be NaN.
    if (base + kBlockPositions > end) {
#pragma unroll
      for (int h = 0; h < D / 64; ++h) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (base + t * 2 + (i & 1) + (i & 2) * 4 >= end) v[h][i] = make_uint4(0, 0, 0, 0);
        }
      }
    }
#pragma unroll
    for (int h = 0; h < D / 64; ++h) {
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const auto word = [&](int i) {
          return w == 0 ? v[h][i].x : w == 1 ? v[h][i].y : w == 2 ? v[h][i].z : v[h][i].w;
        };
        Mma(softmax.values[h * 8 + 2 * w], a, __byte_perm(word(0), word(1), 0x5410),
            __byte_perm(word(2), word(3), 0x5410));
        Mma(softmax.values[h * 8 + 2 * w + 1], a, __byte_perm(word(0), word(1), 0x7632),
            __byte_perm(word(2), word(3), 0x7632));
      }
    }
  }
  softmax.Finish();
  // The warps add their parts in a fixed order.
  if (t == 0) {
    all_most[warp][r] = softmax.most[0], all_sums[warp][r] = softmax.sums[0];
    all_most[warp][r + 8] = softmax.most[1], all_sums[warp][r + 8] = softmax.sums[1];
  }
  __syncthreads();
  float fade[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float most = -INFINITY;
    for (int w = 0; w < kWarps; ++w) most = fmaxf(most, all_most[w][r + 8 * i]);
    fade[i] = softmax.most[i] == -INFINITY ? 0 : exp2f(softmax.most[i] - most);
  }
  for (int w = 0; w < kWarps; ++w) {
    if (w == warp) {
#pragma unroll
      for (int h = 0; h < D / 64; ++h) {
#pragma unroll
        for (int j = 0; j < 8; ++j) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            float& to = whole[r + 8 * (i / 2)][h * 64 + (t * 2 + (i & 1)) * 8 + j];
            const float mine = softmax.values[h * 8 + j][i] * fade[i / 2];
            to = w == 0 ? mine : to + mine;
          }
        }
      }
    }
    __syncthreads();
  }
  for (int j = 0; j < shared; ++j) {
    const size_t at = (row * heads + j * groups + group) * p.splits.most + split;
    for (int d = threadIdx.x; d < D; d += kWarps * kWarp) p.splits.sums[at * D + d] = whole[j][d];
    if (threadIdx.x == 0) {
      float most = -INFINITY, sum = 0;
      for (int w = 0; w < kWarps; ++w) most = fmaxf(most, all_most[w][j]);
      for (int w = 0; w < kWarps; ++w) {
        sum += all_most[w][j] == -INFINITY ? 0 : all_sums[w][j] * exp2f(all_most[w][j] - most);
      }
      p.splits.stats[at] = make_float2(most, sum);
    }
  }
}

}  // namespace

bool SupportsGroupedDecode(const AttentionLayout& layout) {
  const int width = layout.key_width;
  return (width == 64 || width == 128) && layout.value_width == width &&
         layout.value_offset == layout.groups * width &&
         layout.row_width == 2 * layout.groups * width &&
         layout.block_positions == kBlockPositions && layout.heads / layout.groups <= kMostShared;
}

int GroupedSplits(int length, int window) {
  // A window begins anywhere in its first block.
  const uint32_t most = static_cast<uint32_t>(window) + kBlockPositions - 1;
  return kSizes.Count(most < static_cast<uint32_t>(length) ? static_cast<int>(std::bit_ceil(most))
                                                           : length);
}

void GroupedDecode(const AttentionLayout& layout, const AttentionRows& rows, const Splits& splits,
                   cudaStream_t stream) {
  const Parameters parameters{layout, rows, splits, kSizes, RuleOf(rows)};
  const bool narrow = layout.key_width == 64;
  const auto kernel = parameters.rule.plain() ? (narrow ? Decode<64, true> : Decode<128, true>)
                                              : (narrow ? Decode<64, false> : Decode<128, false>);
  Launch(kernel, dim3(splits.most, layout.groups, rows.rows), kWarps * kWarp, 0, stream,
         parameters);
  CombineSplits(layout, rows, splits, kSizes, stream);
}

}  // namespace triptych::cuda
