#include "engine/backend/cuda/device.cuh"
#include "engine/backend/cuda/row_kernels.h"

namespace triptych::cuda {
namespace {

constexpr int kWarps = 4;  // of a block, each with one head

// The rotation of one pair of elements at one position.
struct Turn {
  float cosine = 1;
  float sine = 0;
};
__device__ inline Turn TurnOf(const float* rotation, int position, int pairs, int pair) {
  if (rotation == nullptr) return {};
  const float* const of_position = rotation + static_cast<size_t>(position) * 2 * pairs;
  return {of_position[pair], of_position[pairs + pair]};
}

// Element i of x plus the bias, if there is one.
__device__ inline float Biased(const float* x, const float* bias, int i) {
  return bias != nullptr ? x[i] + bias[i] : x[i];
}

// Elements 2i and 2i + 1 of a vector; the second is 0 beyond its end.
struct Pair {
  float even;
  float odd;
};
__device__ inline Pair Read(const float* x, const float* bias, int i, int width) {
  Pair pair{x[2 * i], 2 * i + 1 < width ? x[2 * i + 1] : 0.f};
  if (bias != nullptr) {
    pair.even += bias[2 * i];
    if (2 * i + 1 < width) pair.odd += bias[2 * i + 1];
  }
  return pair;
}
__device__ inline void Write(const Pair& pair, const Turn& turn, int i, int width, BFloat16* y) {
  y[2 * i] = ToBFloat16(pair.even * turn.cosine - pair.odd * turn.sine);
  if (2 * i + 1 < width) {
    y[2 * i + 1] = ToBFloat16(pair.even * turn.sine + pair.odd * turn.cosine);
  }
}

constexpr int kMeasuringThreads = 256;

// Grid (rows, 2): a block for all queries of a row, and one for all its keys.
__global__ void __launch_bounds__(kMeasuringThreads) MeasureHeads(GroupedRows g, float* factors) {
  __shared__ float sums[kWarp];
  const size_t row = blockIdx.x;
  const int first = blockIdx.y == 0 ? 0 : g.heads * g.width;
  const int count = (blockIdx.y == 0 ? g.heads : g.groups) * g.width;
  const float* const x = g.projected + row * (g.heads + 2 * g.groups) * g.width + first;
  const float* const bias = g.bias != nullptr ? g.bias + first : nullptr;
  float squares = 0;
  for (int i = threadIdx.x; i < count; i += kMeasuringThreads) {
    const float value = Biased(x, bias, i);
    squares += value * value;
  }
  const float factor = rsqrtf(BlockSum(squares, sums) / count + g.norm_eps);
  if (threadIdx.x == 0) factors[row * 2 + blockIdx.y] = factor;
}

// Grid (rows, heads of q, k and v in fours): a warp for each head.
__global__ void __launch_bounds__(kWarps* kWarp)
    WriteGroupedRows(GroupedRows g, RowLocations locations) {
  const int head = blockIdx.y * kWarps + threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int all = g.heads + 2 * g.groups, width = g.width, pairs = (width + 1) / 2;
  if (head >= all) return;
  const size_t row = blockIdx.x;
  const int slot = locations.slots[row], position = max(locations.positions[row], 0);
  const float* const x = g.projected + (row * all + head) * width;
  const float* const bias = g.bias != nullptr ? g.bias + head * width : nullptr;
  const bool query = head < g.heads, value = head >= g.heads + g.groups;
  if (!query && slot < 0) return;
  BFloat16* const y =
      query ? g.queries + (row * g.heads + head) * width
            : g.cache + (static_cast<size_t>(slot) * 2 * g.groups + head - g.heads) * width;
  const float* norm = query ? g.q_norm : value ? nullptr : g.k_norm;
  float factor = 1;
  if (norm != nullptr && g.factors != nullptr) {
    factor = g.factors[row * 2 + (query ? 0 : 1)];
    norm += (query ? head : head - g.heads) * width;
  } else if (norm != nullptr) {
    float squares = 0;
    for (int i = lane; i < pairs; i += kWarp) {
      const Pair pair = Read(x, bias, i, width);
      squares += pair.even * pair.even + pair.odd * pair.odd;
    }
    factor = rsqrtf(WarpSum(squares) / width + g.norm_eps);
  }
  for (int i = lane; i < pairs; i += kWarp) {
    Pair pair = Read(x, bias, i, width);
    if (norm != nullptr) {
      pair.even *= factor * norm[2 * i];
      if (2 * i + 1 < width) pair.odd *= factor * norm[2 * i + 1];
    }
    Write(pair, value ? Turn{} : TurnOf(g.rotation, position, width / 2, i), i, width, y);
  }
}

constexpr int kLatentThreads = 128;

// A block for each row.
__global__ void __launch_bounds__(kLatentThreads)
    WriteLatentRows(LatentRows l, RowLocations locations) {
  __shared__ float sums[kWarp];
  const size_t row = blockIdx.x;
  const int slot = locations.slots[row];
  if (slot < 0) return;
  const float* const x = l.projected + row * l.stride;
  BFloat16* const y = l.cache + static_cast<size_t>(slot) * (l.rank + l.d_rope);
  float factor = 1;
  if (l.norm != nullptr) {
    float squares = 0;
    for (int i = threadIdx.x; i < l.rank; i += kLatentThreads) {
      const float value = Biased(x, l.bias, i);
      squares += value * value;
    }
    factor = rsqrtf(BlockSum(squares, sums) / l.rank + l.norm_eps);
  }
  for (int i = threadIdx.x; i < l.rank; i += kLatentThreads) {
    const float value = Biased(x, l.bias, i);
    y[i] = ToBFloat16(l.norm != nullptr ? value * factor * l.norm[i] : value);
  }
  const float* const bias = l.bias != nullptr ? l.bias + l.rank : nullptr;
  for (int i = threadIdx.x; i < l.d_rope / 2; i += kLatentThreads) {
    Write(Read(x + l.rank, bias, i, l.d_rope),
          TurnOf(l.rotation, locations.positions[row], l.d_rope / 2, i), i, l.d_rope, y + l.rank);
  }
}

// The factor by which the warp's lanes multiply a vector to divide it by its norm.
__device__ inline float InverseNorm(const float* x, const float* bias, int width, float eps) {
  float squares = 0;
  for (int i = threadIdx.x % kWarp; i < width; i += kWarp) {
    const float value = Biased(x, bias, i);
    squares += value * value;
  }
  return rsqrtf(WarpSum(squares) / width + eps);
}

// Grid (rows, keys in fours): a warp for each key.
__global__ void __launch_bounds__(kWarps* kWarp)
    WriteInverseNormRows(KeyNorms k, RowLocations locations) {
  const int key = blockIdx.y * kWarps + threadIdx.x / kWarp;
  const size_t row = blockIdx.x;
  const int slot = locations.slots[row];
  if (key >= k.keys || slot < 0) return;
  const int first = key * k.width;
  const float inverse =
      InverseNorm(k.projected + row * k.stride + first,
                  k.bias != nullptr ? k.bias + first : nullptr, k.width, k.norm_eps);
  const size_t of_key = static_cast<size_t>(slot / k.block_positions) * k.keys + key;
  if (threadIdx.x % kWarp == 0) {
    k.inverse_norms[of_key * k.block_positions + slot % k.block_positions] = inverse;
  }
}

// Grid (rows, heads in fours): a warp for each head.
__global__ void __launch_bounds__(kWarps* kWarp)
    WriteLatentQueryRows(LatentQueries q, RowLocations locations) {
  const int head = blockIdx.y * kWarps + threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  if (head >= q.heads) return;
  const size_t row = blockIdx.x;
  const int width = q.content_width + q.d_rope, position = max(locations.positions[row], 0);
  const float* const x = q.projected + row * q.stride + head * width;
  const float* const bias = q.bias != nullptr ? q.bias + head * width : nullptr;
  const float factor = q.normed ? InverseNorm(x, bias, q.content_width, q.norm_eps) : 1;
  BFloat16* const content = q.content + (row * q.heads + head) * q.content_stride;
  for (int i = lane; i < q.content_width; i += kWarp) {
    content[i] = ToBFloat16(Biased(x, bias, i) * factor);
  }
  BFloat16* const rotary = q.rotary + (row * q.heads + head) * q.rotary_stride;
  for (int i = lane; i < q.d_rope / 2; i += kWarp) {
    Pair pair =
        Read(x + q.content_width, bias != nullptr ? bias + q.content_width : nullptr, i, q.d_rope);
    pair.even *= factor, pair.odd *= factor;
    Write(pair, TurnOf(q.rotation, position, q.d_rope / 2, i), i, q.d_rope, rotary);
  }
}

}  // namespace

void MeasureAllHeads(const GroupedRows& grouped, int rows, float* factors, cudaStream_t stream) {
  Launch(MeasureHeads, dim3(rows, 2), kMeasuringThreads, 0, stream, grouped, factors);
}

void WriteGrouped(const GroupedRows& grouped, const RowLocations& locations, int rows,
                  cudaStream_t stream) {
  const int heads = grouped.heads + 2 * grouped.groups;
  Launch(WriteGroupedRows, dim3(rows, (heads + kWarps - 1) / kWarps), kWarps * kWarp, 0, stream,
         grouped, locations);
}

void WriteLatents(const LatentRows& latents, const RowLocations& locations, int rows,
                  cudaStream_t stream) {
  Launch(WriteLatentRows, dim3(rows), kLatentThreads, 0, stream, latents, locations);
}

void WriteInverseNorms(const KeyNorms& norms, const RowLocations& locations, int rows,
                       cudaStream_t stream) {
  Launch(WriteInverseNormRows, dim3(rows, (norms.keys + kWarps - 1) / kWarps), kWarps * kWarp, 0,
         stream, norms, locations);
}

void WriteLatentQueries(const LatentQueries& queries, const RowLocations& locations, int rows,
                        cudaStream_t stream) {
  Launch(WriteLatentQueryRows, dim3(rows, (queries.heads + kWarps - 1) / kWarps), kWarps * kWarp, 0,
         stream, queries, locations);
}

}  // namespace triptych::cuda
