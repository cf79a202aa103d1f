#include "engine/backend/cuda/split_kv.cuh"

namespace triptych::cuda {
namespace {

constexpr int kThreads = 128;

// Grid (H, rows).
__global__ void __launch_bounds__(kThreads)
    Combine(Splits splits, SplitSizes sizes, const int32_t* positions, int window, int width,
            BFloat16* out) {
  const int head = blockIdx.x;
  const size_t row = blockIdx.y, of_row = row * gridDim.x + head, first = of_row * splits.most;
  const int length = positions[row] + 1, count = sizes.Count(length - SplitsStart(length, window));
  float most = -INFINITY, sum = 0;
  for (int i = 0; i < count; ++i) most = fmaxf(most, splits.stats[first + i].x);
  for (int i = 0; i < count; ++i) {
    sum += splits.stats[first + i].y * exp2f(splits.stats[first + i].x - most);
  }
  for (int d = threadIdx.x; d < width; d += kThreads) {
    float value = 0;
    for (int i = 0; i < count; ++i) {
      value += splits.sums[(first + i) * width + d] * exp2f(splits.stats[first + i].x - most);
    }
    out[of_row * width + d] = ToBFloat16(count > 0 ? value / sum : 0);
  }
}

}  // namespace

void CombineSplits(const AttentionLayout& layout, const AttentionRows& rows, const Splits& splits,
                   SplitSizes sizes, cudaStream_t stream) {
  Launch(Combine, dim3(layout.heads, rows.rows), kThreads, 0, stream, splits, sizes, rows.positions,
         rows.window, layout.value_width, rows.out);
}

}  // namespace triptych::cuda
