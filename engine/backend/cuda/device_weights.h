// A decoder's weights and KV cache in device memory.
#ifndef TRIPTYCH_ENGINE_BACKEND_CUDA_DEVICE_WEIGHTS_H_
#define TRIPTYCH_ENGINE_BACKEND_CUDA_DEVICE_WEIGHTS_H_

#include <cstdint>

#include "engine/backend/cuda/attention_kernels.h"
#include "engine/backend/cuda/device_memory.h"
#include "engine/backend/cuda/matmul.h"

namespace triptych::cuda {

struct DeviceMatrix {
  int64_t outputs = 0;
  int64_t inputs = 0;
  DeviceArray<BFloat16> elements;
  MatmulShape shape;

  bool defined() const { return outputs > 0; }
};

struct DeviceNorm {
  DeviceArray<float> weight;
  DeviceArray<float> bias;
};

struct DeviceLayer {
  DeviceNorm attention_norm, attention_output_norm;
  DeviceMatrix in;
  DeviceArray<float> in_bias, q_norm, k_norm, query_norm, query_up_bias, latent_norm, o_bias;
  DeviceMatrix query_up, uk, uv, o;
  DeviceNorm mlp_norm, mlp_output_norm;
  DeviceMatrix mlp_in, mlp_down;
  DeviceArray<float> mlp_in_bias, mlp_down_bias;

  BFloat16* cache = nullptr;       // [blocks, block_positions, row_width], of the layer's slot
  float* inverse_norms = nullptr;  // [blocks, normed_keys, block_positions], likewise
  int group = 0;                   // of CacheGeometry
  AttentionLayout layout;
  const float* rotation = nullptr;  // the table of rotations, or null if the layer does not rotate
  float scale = 1;
  float cap = 0;                // AttentionRows::cap
  int window = kEveryPosition;  // AttentionRows::window
  // Latent: whether prompts are attended over expanded keys and values, and the products that make
  // these by `uk` and `uv`.
  bool expands = false;
  MatmulShape expand_keys, expand_values;
};

}  // namespace triptych::cuda

#endif  // TRIPTYCH_ENGINE_BACKEND_CUDA_DEVICE_WEIGHTS_H_
