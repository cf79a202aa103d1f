// Normalisation of rows, for serving.
#ifndef TRIPTYCH_ENGINE_KERNELS_NORM_H_
#define TRIPTYCH_ENGINE_KERNELS_NORM_H_

#include <cstdint>

#include "engine/kernels/thread_pool.h"

namespace triptych {

// Of both: on one instruction set a row's result depends on nothing but the row. Sums are float32.
//   x: [rows, width], a row starts x_stride after the last one   y: the same; may be x itself

// x / sqrt(mean(x^2) + eps) * weight (Zhang and Sennrich 2019, arXiv:1910.07467).
//   weight: [width]
void RmsNorm(const float* x, int64_t x_stride, int64_t rows, int64_t width, const float* weight,
             float eps, float* y, int64_t y_stride, ThreadPool& pool);

// (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias (Ba et al. 2016, arXiv:1607.06450).
//   weight: [width]   bias: [width], or null
void LayerNorm(const float* x, int64_t x_stride, int64_t rows, int64_t width, const float* weight,
               const float* bias, float eps, float* y, int64_t y_stride, ThreadPool& pool);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_KERNELS_NORM_H_
