#include "engine/backend/cuda/device.cuh"
#include "engine/backend/cuda/row_kernels.h"

namespace triptych::cuda {
namespace {

constexpr int kThreads = 256;

// Use of a norm's elements.
struct Rounds {
  using To = BFloat16;
  static __device__ void Put(To* y, float value) { *y = ToBFloat16(value); }
};
struct Adds {
  using To = float;
  static __device__ void Put(To* y, float value) { *y += value; }
};

// One block for each row.
template <typename Use>
__global__ void __launch_bounds__(kThreads)
    NormalizeRows(NormParameters norm, const float* x, int64_t stride, const float* added,
                  const int32_t* order, typename Use::To* y) {
  __shared__ float sums[kWarp];
  const float* const from = x + (order != nullptr ? order[blockIdx.x] : blockIdx.x) * stride;
  const int width = norm.width;
  const auto at = [&](int i) { return added != nullptr ? from[i] + added[i] : from[i]; };
  float mean = 0;
  if (norm.kind == NormKind::kLayerNorm) {
    float sum = 0;
    for (int i = threadIdx.x; i < width; i += kThreads) sum += at(i);
    mean = BlockSum(sum, sums) / width;
  }
  float squares = 0;
  for (int i = threadIdx.x; i < width; i += kThreads) squares += (at(i) - mean) * (at(i) - mean);
  const float factor = rsqrtf(BlockSum(squares, sums) / width + norm.eps);
  typename Use::To* const to = y + blockIdx.x * static_cast<size_t>(width);
  for (int i = threadIdx.x; i < width; i += kThreads) {
    const float value = (at(i) - mean) * factor * norm.weight[i];
    Use::Put(to + i, norm.bias != nullptr ? value + norm.bias[i] : value);
  }
}

// The same for RMS norms without `bias` and `added`, 4 elements at a time.
__global__ void __launch_bounds__(kThreads)
    RmsNormRows(const float* weight, float eps, int width, const float* x, int64_t stride,
                const int32_t* order, BFloat16* y) {
  __shared__ float sums[kWarp];
  const float4* const from = reinterpret_cast<const float4*>(
      x + (order != nullptr ? order[blockIdx.x] : blockIdx.x) * stride);
  float squares = 0;
  for (int i = threadIdx.x; i < width / 4; i += kThreads) {
    const float4 v = from[i];
    squares += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
  }
  const float factor = rsqrtf(BlockSum(squares, sums) / width + eps);
  uint2* const to = reinterpret_cast<uint2*>(y + blockIdx.x * static_cast<size_t>(width));
  for (int i = threadIdx.x; i < width / 4; i += kThreads) {
    const float4 v = from[i], w = reinterpret_cast<const float4*>(weight)[i];
    to[i] = make_uint2(Pack(v.x * factor * w.x, v.y * factor * w.y),
                       Pack(v.z * factor * w.z, v.w * factor * w.w));
  }
}

__global__ void RoundElements(const float* x, int64_t size, BFloat16* y) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x;
  if (i < size) y[i] = ToBFloat16(x[i]);
}

}  // namespace

void Normalize(const NormParameters& norm, const float* x, int64_t stride, const float* added,
               const int32_t* order, int rows, BFloat16* y, cudaStream_t stream) {
  if (norm.kind == NormKind::kRmsNorm && norm.bias == nullptr && added == nullptr &&
      norm.width % 4 == 0 && stride % 4 == 0) {
    Launch(RmsNormRows, dim3(rows), kThreads, 0, stream, norm.weight, norm.eps, norm.width, x,
           stride, order, y);
    return;
  }
  Launch(NormalizeRows<Rounds>, dim3(rows), kThreads, 0, stream, norm, x, stride, added, order, y);
}

void AddNormalized(const NormParameters& norm, const float* x, int rows, float* y,
                   cudaStream_t stream) {
  const float* const added = nullptr;
  const int32_t* const order = nullptr;
  Launch(NormalizeRows<Adds>, dim3(rows), kThreads, 0, stream, norm, x, int64_t{norm.width}, added,
         order, y);
}

void Round(const float* x, int64_t size, BFloat16* y, cudaStream_t stream) {
  Launch(RoundElements, dim3(static_cast<unsigned>((size + kThreads - 1) / kThreads)), kThreads, 0,
         stream, x, size, y);
}

}  // namespace triptych::cuda
