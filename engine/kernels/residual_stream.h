// Kernels of a decoder's residual stream: embeddings and additions.
#ifndef TRIPTYCH_ENGINE_KERNELS_RESIDUAL_STREAM_H_
#define TRIPTYCH_ENGINE_KERNELS_RESIDUAL_STREAM_H_

#include <cstdint>

#include "engine/base/formats.h"
#include "engine/kernels/context.h"

namespace triptych::kernels {

// Copies row indices[i] of the table to row i of y.
//   table: [..., width] of this format   indices: [rows]   y: [rows, width]
void CopyRows(TensorFormat format, const void* table, const int64_t* indices, int64_t rows,
              int64_t width, float* y, KernelContext& context);

// Adds row indices[i] of the table to row i of y.
//   table: [..., width] of this format   indices: [rows]   y: [rows, width]
void AddRows(TensorFormat format, const void* table, const int64_t* indices, int64_t rows,
             int64_t width, float* y, KernelContext& context);

// y += x, both [count].
void Add(const float* x, int64_t count, float* y, KernelContext& context);

// Adds weights[i] times row i of x to row to[i] of y, one after another, so that a row of y has the
// same bits whatever other rows there are.
//   x: [rows, width]   to, weights: [rows]   y: [..., width]
void AddWeightedRows(const float* x, const int64_t* to, const float* weights, int64_t rows,
                     int64_t width, float* y, KernelContext& context);

}  // namespace triptych::kernels

#endif  // TRIPTYCH_ENGINE_KERNELS_RESIDUAL_STREAM_H_
