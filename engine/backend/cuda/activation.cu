#include <algorithm>
#include <cmath>

#include "engine/backend/cuda/device.cuh"
#include "engine/backend/cuda/row_kernels.h"

namespace triptych::cuda {
namespace {

constexpr int kThreads = 256;

__device__ inline float Silu(float x) { return x / (1 + __expf(-x)); }
__device__ inline float Activated(HiddenAct activation, float x) {
  switch (activation) {
    case HiddenAct::kSilu:
      return Silu(x);
    case HiddenAct::kGelu:
      return 0.5f * x * (1 + tanhf(0.7978845608028654f * (x + 0.044715f * x * x * x)));
    case HiddenAct::kGeluExact:
      return 0.5f * x * (1 + erff(x * 0.7071067811865476f));
    case HiddenAct::kRelu2:
      return x <= 0 ? 0 : x * x;  // not-a-number stays
  }
  return 0;
}

__global__ void ActivateRows(HiddenAct activation, bool gated, const BFloat16* x, const float* bias,
                             int width, BFloat16* y) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= width) return;
  const size_t row = blockIdx.y;
  const BFloat16* const from = x + row * width * (gated ? 2 : 1);
  float value = ToFloat(from[i]);
  if (bias != nullptr) value += bias[i];
  value = Activated(activation, value);
  if (gated) {
    const float up = ToFloat(from[width + i]);
    value *= bias != nullptr ? up + bias[width + i] : up;
  }
  y[row * width + i] = ToBFloat16(value);
}

// SwiGLU without bias, 8 elements at a time.
__global__ void __launch_bounds__(kThreads) GatedSilu(const BFloat16* x, int width, BFloat16* y) {
  const int i = (blockIdx.x * kThreads + threadIdx.x) * 8;
  if (i >= width) return;
  const size_t row = blockIdx.y;
  const uint4 gates = *reinterpret_cast<const uint4*>(x + row * 2 * width + i);
  const uint4 ups = *reinterpret_cast<const uint4*>(x + row * 2 * width + width + i);
  const BFloat16* const gate = reinterpret_cast<const BFloat16*>(&gates);
  const BFloat16* const up = reinterpret_cast<const BFloat16*>(&ups);
  uint32_t out[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    out[j] = Pack(Silu(ToFloat(gate[2 * j])) * ToFloat(up[2 * j]),
                  Silu(ToFloat(gate[2 * j + 1])) * ToFloat(up[2 * j + 1]));
  }
  *reinterpret_cast<uint4*>(y + row * width + i) = make_uint4(out[0], out[1], out[2], out[3]);
}

__global__ void AddBiasRows(float* x, const float* bias, int width) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < width) x[blockIdx.y * static_cast<size_t>(width) + i] += bias[i];
}

__global__ void CapElements(float* x, float cap, int64_t size) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x;
  if (i < size) x[i] = cap * tanhf(x[i] / cap);
}

__global__ void FillRandomly(BFloat16* x, int64_t size, uint64_t seed, float deviation) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x; i < size; i += step) {
    uint64_t bits =
        static_cast<uint64_t>(i + 1) * 0x9E3779B97F4A7C15ull + seed * 0xD1B54A32D192ED03ull;
    bits ^= bits >> 31;
    bits *= 0xBF58476D1CE4E5B9ull;
    bits ^= bits >> 27;
    bits *= 0x94D049BB133111EBull;
    bits ^= bits >> 31;
    const float uniform = static_cast<float>(static_cast<uint32_t>(bits)) / 4294967296.f - 0.5f;
    x[i] = ToBFloat16(uniform * 3.4641016f * deviation);
  }
}

}  // namespace

void Activate(HiddenAct activation, bool gated, const BFloat16* x, const float* bias, int width,
              int rows, BFloat16* y, cudaStream_t stream) {
  const bool by_eights =
      gated && activation == HiddenAct::kSilu && bias == nullptr && width % 8 == 0;
  const int columns = by_eights ? width / 8 : width;
  for (int first = 0; first < rows; first += kMostGridRows) {
    const dim3 grid((columns + kThreads - 1) / kThreads, std::min(rows - first, kMostGridRows));
    const BFloat16* const from = x + first * int64_t{width} * (gated ? 2 : 1);
    BFloat16* const to = y + first * int64_t{width};
    if (by_eights) {
      Launch(GatedSilu, grid, kThreads, 0, stream, from, width, to);
    } else {
      Launch(ActivateRows, grid, kThreads, 0, stream, activation, gated, from, bias, width, to);
    }
  }
}

void AddBias(float* x, const float* bias, int width, int rows, cudaStream_t stream) {
  Launch(AddBiasRows, dim3((width + kThreads - 1) / kThreads, rows), kThreads, 0, stream, x, bias,
         width);
}

void CapLogits(float* x, float cap, int64_t size, cudaStream_t stream) {
  Launch(CapElements, dim3(static_cast<unsigned>((size + kThreads - 1) / kThreads)), kThreads, 0,
         stream, x, cap, size);
}

void FillRandom(BFloat16* x, int64_t size, uint64_t seed, float deviation, cudaStream_t stream) {
  if (size > 0) Launch(FillRandomly, dim3(2048), kThreads, 0, stream, x, size, seed, deviation);
}

}  // namespace triptych::cuda
