// Kernels that work on one row per token: embedding, norms, rotation, activation.
// A row's result depends on that row only, bit for bit. Every function enqueues on `stream`.
#ifndef TRIPTYCH_ENGINE_BACKEND_CUDA_ROW_KERNELS_H_
#define TRIPTYCH_ENGINE_BACKEND_CUDA_ROW_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "engine/backend/cuda/device_memory.h"
#include "engine/model/config.h"

namespace triptych::cuda {

// Positions and cache slots of a step's rows, in device memory. Both are -1 for padding rows.
struct RowLocations {
  const int32_t* positions;  // [rows], in the row's sequence
  const int32_t* slots;      // [rows], index of the row's cache row in a layer's cache
};

// --- embedding.cu

struct Embedding {
  const BFloat16* tokens;  // [vocab, width]
  const float* positions;  // [max_positions, width] or null
  float multiplier;        // of the token's embedding
  int width;
};
// y: [rows, width]
void Embed(const Embedding& embedding, const int32_t* ids, const int32_t* positions, int rows,
           float* y, cudaStream_t stream);

// --- norm.cu

struct NormParameters {
  NormKind kind;
  const float* weight;  // [width]
  const float* bias;    // [width] or null
  float eps;
  int width;
};
// Row i of y is the norm of row order[i] of x, or of row i if `order` is null.
//   x: rows `stride` elements apart   added: [width] or null, added to each row of x first
//   y: [rows, width]
void Normalize(const NormParameters& norm, const float* x, int64_t stride, const float* added,
               const int32_t* order, int rows, BFloat16* y, cudaStream_t stream);
// y += the norm of x; both are [rows, width].
void AddNormalized(const NormParameters& norm, const float* x, int rows, float* y,
                   cudaStream_t stream);
// y: x, rounded.
void Round(const float* x, int64_t size, BFloat16* y, cudaStream_t stream);

// --- rotation.cu: from projections to queries and cache rows

struct GroupedRows {
  const float* projected;  // [rows, H + 2G, d]: q, k, v
  const float* bias;       // [H + 2G, d] or null
  const float* q_norm;     // [d], or [H, d] with `factors`; or null
  const float* k_norm;     // [d], or [G, d] with `factors`; or null
  float norm_eps;
  // [rows, 2]: of MeasureAllHeads; null: each head has a norm of its own.
  const float* factors;
  const float* rotation;  // [max_positions, 2, d / 2] or null
  int heads, groups, width;
  BFloat16* queries;  // [rows, H, d]
  BFloat16* cache;    // rows of 2 G d: keys of all groups, then values
};
// Writes the factors by which the norm over all queries and that over all keys multiply each row.
void MeasureAllHeads(const GroupedRows& grouped, int rows, float* factors, cudaStream_t stream);
// Adds biases, normalizes, rotates; writes queries to `queries`, keys and values to the cache.
void WriteGrouped(const GroupedRows& grouped, const RowLocations& locations, int rows,
                  cudaStream_t stream);

struct LatentRows {
  const float* projected;  // rows `stride` elements apart: latent, decoupled key
  int64_t stride;
  const float* bias;  // [r + d_R] or null
  const float* norm;  // [r] or null
  float norm_eps;
  const float* rotation;  // [max_positions, 2, d_R / 2] or null
  int rank, d_rope;
  BFloat16* cache;  // rows of r + d_R
};
void WriteLatents(const LatentRows& latents, const RowLocations& locations, int rows,
                  cudaStream_t stream);

// Keys of MLA that are computed only for their norms.
struct KeyNorms {
  const float* projected;  // rows of [keys, width], `stride` elements apart
  int64_t stride;
  const float* bias;  // [keys, width] or null
  float norm_eps;
  int keys, width;
  int block_positions;
  float* inverse_norms;  // [blocks, keys, block_positions]
};
void WriteInverseNorms(const KeyNorms& norms, const RowLocations& locations, int rows,
                       cudaStream_t stream);

struct LatentQueries {
  const float* projected;  // rows `stride` elements apart; per head: content, rotary part
  int64_t stride;
  const float* bias;  // [H, content_width + d_R] or null
  // Whether each head is divided by the norm of its content first.
  bool normed;
  float norm_eps;
  const float* rotation;
  int heads, content_width, d_rope;
  BFloat16* content;  // per head [content_width], heads `content_stride` apart
  int64_t content_stride;
  BFloat16* rotary;  // per head [d_R], heads `rotary_stride` apart
  int64_t rotary_stride;
};
void WriteLatentQueries(const LatentQueries& queries, const RowLocations& locations, int rows,
                        cudaStream_t stream);

// --- activation.cu

// x: [rows, 2 * width] (gate, then up) if gated, else [rows, width]   bias: of x's width, or null
// y: [rows, width]
void Activate(HiddenAct activation, bool gated, const BFloat16* x, const float* bias, int width,
              int rows, BFloat16* y, cudaStream_t stream);
// x: [rows, width] += bias
void AddBias(float* x, const float* bias, int width, int rows, cudaStream_t stream);

// x becomes cap tanh(x / cap).
void CapLogits(float* x, float cap, int64_t size, cudaStream_t stream);

// Fills x with uniform numbers of the given standard deviation; equal seeds give equal numbers.
void FillRandom(BFloat16* x, int64_t size, uint64_t seed, float deviation, cudaStream_t stream);

}  // namespace triptych::cuda

#endif  // TRIPTYCH_ENGINE_BACKEND_CUDA_ROW_KERNELS_H_
