#include <cmath>

#include "engine/backend/cuda/device.cuh"
#include "engine/backend/cuda/experts.h"
#include "engine/model/config.h"

namespace triptych::cuda {
namespace {

// --- The choice

constexpr int kLogitWarps = 8;
constexpr int kLogitRows = 8;

// Grid (groups of kLogitWarps experts, groups of kLogitRows rows). Each warp multiplies its rows by
// the weights of one expert.
__global__ void __launch_bounds__(kLogitWarps* kWarp)
    RouterLogits(ExpertRouter router, const BFloat16* x, int rows, float* logits) {
  const int expert = blockIdx.x * kLogitWarps + threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  if (expert >= router.experts) return;
  const int first = blockIdx.y * kLogitRows;
  const size_t width = router.width;
  const float* const w = router.matrix + expert * width;
  float sums[kLogitRows] = {};
  for (int i = lane; i < router.width; i += kWarp) {
    const float weight = w[i];
#pragma unroll
    for (int r = 0; r < kLogitRows; ++r) {
      sums[r] = fmaf(weight, ToFloat(x[min(first + r, rows - 1) * width + i]), sums[r]);
    }
  }
#pragma unroll
  for (int r = 0; r < kLogitRows; ++r) {
    const float sum = WarpSum(sums[r]);
    if (lane == 0 && first + r < rows) {
      logits[(first + r) * static_cast<size_t>(router.experts) + expert] = sum;
    }
  }
}

// Scores of a row's logits.
__device__ inline void Score(const ExpertRouter& router, const float* logits, float* scores) {
  const int lane = threadIdx.x, count = router.experts;
  if (router.sigmoid) {
    for (int i = lane; i < count; i += kWarp) scores[i] = 1 / (1 + expf(-logits[i]));
    return;
  }
  float most = -INFINITY, sum = 0;
  for (int i = lane; i < count; i += kWarp) most = fmaxf(most, logits[i]);
  most = WarpMax(most);
  for (int i = lane; i < count; i += kWarp) sum += scores[i] = expf(logits[i] - most);
  sum = WarpSum(sum);
  for (int i = lane; i < count; i += kWarp) scores[i] /= sum;
}

// Takes the largest of some numbers, the first of equal ones: it becomes NaN, which marks a taken
// one, and its index is returned to every lane. REQUIRES: one is not taken.
__device__ inline int TakeLargest(float* numbers, int count) {
  const int lane = threadIdx.x;
  float most = NAN;
  for (int i = lane; i < count; i += kWarp) most = fmaxf(most, numbers[i]);  // ignores NaN
  most = WarpMax(most);
  int first = lane;
  while (first < count && numbers[first] != most) first += kWarp;
  first = -static_cast<int>(WarpMax(-static_cast<float>(first)));
  if (first % kWarp == lane) numbers[first] = NAN;
  return first;
}

// Sets the numbers of all groups but the best to minus infinity.
//   sums: [groups], scratch
__device__ inline void LimitToGroups(const ExpertRouter& router, float* numbers, float* sums) {
  const int lane = threadIdx.x, size = router.experts / router.groups;
  for (int group = lane; group < router.groups; group += kWarp) {
    float best = -INFINITY, second = -INFINITY;
    for (int i = group * size; i < (group + 1) * size; ++i) {
      const float number = numbers[i];
      second = fmaxf(second, fminf(best, number));
      best = fmaxf(best, number);
    }
    sums[group] = router.best_of_group == 1 || size == 1 ? best : best + second;
  }
  __syncthreads();
  for (int i = 0; i < router.chosen_groups; ++i) TakeLargest(sums, router.groups);
  __syncthreads();
  for (int i = lane; i < router.experts; i += kWarp) {
    const float sum = sums[i / size];
    if (sum == sum) numbers[i] = -INFINITY;
  }
  __syncthreads();
}

// One warp for each row.
__global__ void __launch_bounds__(kWarp)
    ChooseExperts(ExpertRouter router, const float* logits, const int32_t* positions,
                  int32_t* experts, float* weights) {
  const int lane = threadIdx.x, count = router.experts, choices = router.choices;
  const size_t row = blockIdx.x;
  experts += row * choices;
  weights += row * choices;
  if (positions[row] < 0) {
    for (int i = lane; i < choices; i += kWarp) experts[i] = -1;
    return;
  }
  float* const scores = reinterpret_cast<float*>(DynamicShared());  // [count]
  float* const numbers = scores + count;                            // [count], to choose by
  float* const sums = numbers + count;                              // [groups]
  int* const chosen = reinterpret_cast<int*>(sums);                 // [choices], when sums are used
  Score(router, logits + row * count, scores);
  for (int i = lane; i < count; i += kWarp) {
    const float number = scores[i] + (router.bias != nullptr ? router.bias[i] : 0);
    numbers[i] = number == number ? number : -INFINITY;
  }
  __syncthreads();
  if (router.chosen_groups < router.groups) LimitToGroups(router, numbers, sums);
  for (int i = 0; i < choices; ++i) {
    const int expert = TakeLargest(numbers, count);
    if (lane == 0) chosen[i] = expert;
  }
  __syncthreads();
  float* const ascending = numbers;  // [choices], the chosen experts' scores
  for (int i = lane; i < choices; i += kWarp) {
    int slot = 0;
    for (int j = 0; j < choices; ++j) slot += chosen[j] < chosen[i] ? 1 : 0;
    experts[slot] = chosen[i];
    ascending[slot] = scores[chosen[i]];
  }
  __syncthreads();
  float sum = static_cast<float>(kLeastScoreSum);
  for (int i = 0; i < choices; ++i) sum += ascending[i];
  const float factor = router.normalize ? router.scale / sum : router.scale;
  for (int i = lane; i < choices; i += kWarp) weights[i] = ascending[i] * factor;
}

// One warp for each expert, which lists the expert's choices after those of lower experts.
__global__ void __launch_bounds__(kWarp)
    SortChoices(RoutedRows routed, int choices, int64_t* totals) {
  const int expert = blockIdx.x, lane = threadIdx.x;
  int first = 0;
  for (int base = 0; base < choices; base += kWarp) {
    const int i = base + lane;
    const bool lower = i < choices && routed.experts[i] >= 0 && routed.experts[i] < expert;
    first += __popc(__ballot_sync(kAllLanes, lower));
  }
  int next = first;
  for (int base = 0; base < choices; base += kWarp) {
    const int i = base + lane;
    const bool mine = i < choices && routed.experts[i] == expert;
    const unsigned lanes = __ballot_sync(kAllLanes, mine);
    if (mine) routed.sorted[next + __popc(lanes & ((1u << lane) - 1))] = i;
    next += __popc(lanes);
  }
  if (lane == 0) {
    routed.parts[expert] = {first, next - first};
    totals[expert] += next - first;
  }
}

// --- Products

constexpr int kTileWarps = 4, kTileThreads = kTileWarps * kWarp;
constexpr int kDepth = 64;  // inputs of a stage
constexpr int kPitch = kDepth + 8;

// A thread block's tile: R times 16 rows, and N times 8 outputs for each warp. S stages of inputs
// are in shared memory.
template <int R, int N, int S>
struct ExpertTiling {
  static constexpr int kRowTiles = R, kEights = N, kStages = S;
  static constexpr int kRows = 16 * R, kOutputs = kTileWarps * 8 * N;
  static constexpr int kStage = (kRows + kOutputs) * kPitch;  // elements
  static constexpr int kSharedBytes = kStages * kStage * static_cast<int>(sizeof(BFloat16));
};
// For experts with few rows, whose time is that of reading weights, and with many. Both give the
// same bits.
using FewRows = ExpertTiling<1, 2, 4>;
using ManyRows = ExpertTiling<4, 4, 3>;

struct ExpertProduct {
  MatmulShape shape;
  const BFloat16* w;
  const BFloat16* x;
  int sharing;
  const int32_t* sorted;
  const ExpertPart* parts;
  void* y;
};

// Grid (tiles of outputs, tiles of rows, experts). The grid has room for experts that every row
// chooses; the other thread blocks exit. An element is summed in the order of inputs, 16 at a time.
template <typename Tiling>
__global__ void __launch_bounds__(kTileThreads) MultiplyTile(ExpertProduct p) {
  constexpr int kRows = Tiling::kRows, kOutputs = Tiling::kOutputs, kStages = Tiling::kStages;
  constexpr int kRowTiles = Tiling::kRowTiles, kEights = Tiling::kEights;
  constexpr int kColumns = kDepth / 8;  // of 8 inputs, which a thread copies at once
  const ExpertPart part = p.parts[blockIdx.z];
  const int first = blockIdx.y * kRows, rows = min(part.count - first, kRows);
  if (rows <= 0) return;
  const int inputs = static_cast<int>(p.shape.inputs), outputs = static_cast<int>(p.shape.outputs);
  const int first_output = blockIdx.x * kOutputs;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int32_t* const choices = p.sorted + part.first + first;
  const BFloat16* const w = p.w + static_cast<size_t>(blockIdx.z) * outputs * inputs;
  __shared__ int x_rows[kRows];
  for (int i = threadIdx.x; i < kRows; i += kTileThreads) {
    x_rows[i] = choices[min(i, rows - 1)] / p.sharing;
  }
  __syncthreads();

  // A stage: inputs of the tile's rows, then of its outputs; zeros beyond the matrices.
  BFloat16* const stages = reinterpret_cast<BFloat16*>(DynamicShared());
  const auto fetch = [&](int step) {
    BFloat16* const stage = stages + step % kStages * Tiling::kStage;
    for (int i = threadIdx.x; i < (kRows + kOutputs) * kColumns; i += kTileThreads) {
      const int line = i / kColumns, column = i % kColumns * 8, input = step * kDepth + column;
      const int output = first_output + line - kRows;
      const bool is_row = line < kRows;
      const bool seen = input < inputs && (is_row ? line < rows : output < outputs);
      const BFloat16* from = w;
      if (seen) {
        from = is_row ? p.x + static_cast<size_t>(x_rows[line]) * inputs + input
                      : w + static_cast<size_t>(output) * inputs + input;
      }
      CopyAsync(stage + line * kPitch + column, from, seen);
    }
  };
  const int steps = (inputs + kDepth - 1) / kDepth;
#pragma unroll
  for (int step = 0; step < kStages - 1; ++step) {
    if (step < steps) fetch(step);
    CommitCopies();
  }
  float sums[kRowTiles][kEights][4] = {};
  for (int step = 0; step < steps; ++step) {
    WaitForCopies<kStages - 2>();
    __syncthreads();  // this stage is there, and nobody reads the one before it
    if (step + kStages - 1 < steps) fetch(step + kStages - 1);
    CommitCopies();
    const BFloat16* const of_rows = stages + step % kStages * Tiling::kStage;
    const BFloat16* const of_outputs = of_rows + (kRows + warp * 8 * kEights) * kPitch;
#pragma unroll
    for (int k = 0; k < kDepth; k += 16) {
      uint32_t a[kRowTiles][4];
#pragma unroll
      for (int j = 0; j < kRowTiles; ++j) {
        LoadTiles(a[j], of_rows + (j * 16 + lane % 16) * kPitch + k + lane / 16 * 8);
      }
#pragma unroll
      for (int n = 0; n < kEights; n += 2) {
        uint32_t b[4];
        LoadTiles(b,
                  of_outputs + (n * 8 + lane / 16 * 8 + lane % 8) * kPitch + k + lane / 8 % 2 * 8);
#pragma unroll
        for (int j = 0; j < kRowTiles; ++j) {
          Mma(sums[j][n], a[j], b[0], b[1]);
          Mma(sums[j][n + 1], a[j], b[2], b[3]);
        }
      }
    }
  }
#pragma unroll
  for (int j = 0; j < kRowTiles; ++j) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int line = j * 16 + lane / 4 + 8 * i;
      if (line >= rows) continue;
      const size_t y_row = static_cast<size_t>(choices[line]) * outputs;
#pragma unroll
      for (int n = 0; n < kEights; ++n) {
        const int output = first_output + warp * 8 * kEights + n * 8 + lane % 4 * 2;
        if (output >= outputs) continue;
        const float* const pair = sums[j][n] + 2 * i;
        if (p.shape.output == MatmulOutput::kBFloat16) {
          *reinterpret_cast<uint32_t*>(static_cast<BFloat16*>(p.y) + y_row + output) =
              Pack(pair[0], pair[1]);
        } else {
          *reinterpret_cast<float2*>(static_cast<float*>(p.y) + y_row + output) =
              make_float2(pair[0], pair[1]);
        }
      }
    }
  }
}

template <typename Tiling>
void LaunchTiles(const ExpertProduct& product, int experts, int rows, cudaStream_t stream) {
  const auto tiles = [](int64_t n, int size) {
    return static_cast<unsigned>((n + size - 1) / size);
  };
  Launch(MultiplyTile<Tiling>,
         dim3(tiles(product.shape.outputs, Tiling::kOutputs), tiles(rows, Tiling::kRows),
              static_cast<unsigned>(experts)),
         kTileThreads, Tiling::kSharedBytes, stream, product);
}

// --- The sum

constexpr int kSumThreads = 256;

// One block for each row.
__global__ void __launch_bounds__(kSumThreads)
    AddWeighted(ExpertSum sum, int width, int choices, const float* weights,
                const int32_t* positions, float* y) {
  __shared__ float sums[kWarp];
  const size_t row = blockIdx.x;
  if (positions[row] < 0) return;
  float gate = 1;
  if (sum.gate != nullptr) {
    float product = 0;
    for (int i = threadIdx.x; i < width; i += kSumThreads) {
      product += sum.gate[i] * ToFloat(sum.x[row * width + i]);
    }
    gate = 1 / (1 + expf(-BlockSum(product, sums)));
  }
  for (int i = threadIdx.x; i < width; i += kSumThreads) {
    float element = sum.shared != nullptr ? gate * sum.shared[row * width + i] : 0;
    for (int choice = 0; choice < choices; ++choice) {
      const size_t at = row * choices + choice;
      element += weights[at] * sum.outputs[at * width + i];
    }
    y[row * width + i] += element;
  }
}

}  // namespace

void RouteRows(const ExpertRouter& router, const BFloat16* x, const int32_t* positions, int rows,
               float* logits, const RoutedRows& routed, int64_t* totals, cudaStream_t stream) {
  Launch(
      RouterLogits,
      dim3((router.experts + kLogitWarps - 1) / kLogitWarps, (rows + kLogitRows - 1) / kLogitRows),
      kLogitWarps * kWarp, 0, stream, router, x, rows, logits);
  Launch(ChooseExperts, dim3(rows), kWarp, 3 * router.experts * sizeof(float), stream, router,
         logits, positions, routed.experts, routed.weights);
  Launch(SortChoices, dim3(router.experts), kWarp, 0, stream, routed, rows * router.choices,
         totals);
}

bool TensorCoresMultiply(const MatmulShape& shape) {
  // Tiles copy 8 inputs and write 2 outputs at once.
  return shape.inputs % 8 == 0 && shape.outputs % 2 == 0;
}

void MultiplyByExperts(const MatmulShape& shape, const ExpertRouter& router, const BFloat16* w,
                       const BFloat16* x, int sharing, const RoutedRows& routed, int rows, void* y,
                       cudaStream_t stream) {
  const int choices = rows * router.choices;
  if (!TensorCoresMultiply(shape)) {
    GeneralMatmul(shape, w, x, choices, y, stream, {routed.experts, sharing});
    return;
  }
  const ExpertProduct product{shape, w, x, sharing, routed.sorted, routed.parts, y};
  if (choices / router.experts < ManyRows::kRows / 2) {
    LaunchTiles<FewRows>(product, router.experts, rows, stream);
  } else {
    LaunchTiles<ManyRows>(product, router.experts, rows, stream);
  }
}

void PrepareExperts() { AllowShared(MultiplyTile<ManyRows>, ManyRows::kSharedBytes); }

void AddExperts(const ExpertSum& sum, const ExpertRouter& router, const RoutedRows& routed,
                const int32_t* positions, int rows, float* y, cudaStream_t stream) {
  Launch(AddWeighted, dim3(rows), kSumThreads, 0, stream, sum, router.width, router.choices,
         routed.weights, positions, y);
}

}  // namespace triptych::cuda
