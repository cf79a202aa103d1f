#include <algorithm>

#include "engine/backend/cuda/device.cuh"
#include "engine/backend/cuda/matmul.h"

namespace triptych::cuda {
namespace {

constexpr int kWarps = 8;

// Grid (groups of kWarps outputs, rows, heads); each warp computes one output of a row.
__global__ void __launch_bounds__(kWarps* kWarp)
    OneOutputPerWarp(MatmulShape shape, Routing routing, const BFloat16* w, const BFloat16* x,
                     int64_t rows, void* y) {
  const int64_t output = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (output >= shape.outputs) return;
  const int64_t head = blockIdx.z;
  const int64_t stride = shape.transposed ? shape.outputs : 1;
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const int64_t expert = routing.experts != nullptr ? routing.experts[row] : 0;
    if (expert < 0) continue;
    const BFloat16* const a = w + (expert * shape.heads + head) * shape.outputs * shape.inputs +
                              output * (shape.transposed ? 1 : shape.inputs);
    const BFloat16* const b =
        x + row / routing.sharing * shape.x_stride + head * shape.x_head_stride;
    float sum = 0;
    for (int64_t i = threadIdx.x % kWarp; i < shape.inputs; i += kWarp) {
      sum += ToFloat(a[i * stride]) * ToFloat(b[i]);
    }
    sum = WarpSum(sum);
    if (threadIdx.x % kWarp != 0) continue;
    const int64_t at = row * shape.y_stride + head * shape.y_head_stride + output;
    switch (shape.output) {
      case MatmulOutput::kBFloat16:
        static_cast<BFloat16*>(y)[at] = ToBFloat16(sum);
        break;
      case MatmulOutput::kFloat32:
        static_cast<float*>(y)[at] = sum;
        break;
      case MatmulOutput::kAddFloat32:
        static_cast<float*>(y)[at] += sum;
        break;
    }
  }
}

}  // namespace

void GeneralMatmul(const MatmulShape& shape, const BFloat16* w, const BFloat16* x, int64_t rows,
                   void* y, cudaStream_t stream, const Routing& routing) {
  const auto blocks = static_cast<unsigned>((shape.outputs + kWarps - 1) / kWarps);
  Launch(OneOutputPerWarp,
         dim3(blocks, static_cast<unsigned>(std::min<int64_t>(rows, kMostGridRows)),
              static_cast<unsigned>(shape.heads)),
         kWarps * kWarp, 0, stream, shape, routing, w, x, rows, y);
}

}  // namespace triptych::cuda
