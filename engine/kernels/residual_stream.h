// The residual stream of a decoder: what it starts as, and what its branches add.
#ifndef TRIPTYCH_ENGINE_KERNELS_RESIDUAL_STREAM_H_
#define TRIPTYCH_ENGINE_KERNELS_RESIDUAL_STREAM_H_

#include <cstdint>

#include "engine/kernels/thread_pool.h"

namespace triptych {

// Row i of y becomes row indices[i] of the table. `Row` is float or a 16-bit bfloat16.
//   table: [..., width]   indices: [rows]   y: [rows, width]
template <typename Row>
void CopyRows(const Row* table, const int64_t* indices, int64_t rows, int64_t width, float* y,
              ThreadPool& pool);

// The same, added to y.
template <typename Row>
void AddRows(const Row* table, const int64_t* indices, int64_t rows, int64_t width, float* y,
             ThreadPool& pool);

// y += x, both [count].
void Add(const float* x, int64_t count, float* y, ThreadPool& pool);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_KERNELS_RESIDUAL_STREAM_H_
