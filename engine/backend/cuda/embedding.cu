#include "engine/backend/cuda/device.cuh"
#include "engine/backend/cuda/row_kernels.h"

namespace triptych::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void EmbedRows(Embedding embedding, const int32_t* ids, const int32_t* positions,
                          float* y) {
  const size_t row = blockIdx.x, width = embedding.width;
  const BFloat16* const token = embedding.tokens + ids[row] * width;
  const int position = max(positions[row], 0);
  for (int i = threadIdx.x; i < embedding.width; i += kThreads) {
    float x = ToFloat(token[i]) * embedding.multiplier;
    if (embedding.positions != nullptr) x += embedding.positions[position * width + i];
    y[row * width + i] = x;
  }
}

}  // namespace

void Embed(const Embedding& embedding, const int32_t* ids, const int32_t* positions, int rows,
           float* y, cudaStream_t stream) {
  Launch(EmbedRows, dim3(rows), kThreads, 0, stream, embedding, ids, positions, y);
}

}  // namespace triptych::cuda
