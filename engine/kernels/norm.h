// Row normalisation kernels.
#ifndef TRIPTYCH_ENGINE_KERNELS_NORM_H_
#define TRIPTYCH_ENGINE_KERNELS_NORM_H_

#include <cstdint>

#include "engine/kernels/context.h"

namespace triptych::kernels {

// In all functions, on one instruction set a row's result depends on that row only. Sums are
// float32.
//   x: [rows, width], x_stride elements from one row to the next
//   y: [rows, width], y_stride elements from one row to the next; may be x itself

// x / sqrt(mean(x^2) + eps) * weight (Zhang and Sennrich 2019, arXiv:1910.07467).
//   weight: [width]
void RmsNormRows(const float* x, int64_t x_stride, int64_t rows, int64_t width, const float* weight,
                 float eps, float* y, int64_t y_stride, KernelContext& context);

// The same for each head of each row, in place.
//   x: [rows, heads, width], x_stride elements from one row to the next
void RmsNormHeads(float* x, int64_t x_stride, int64_t rows, int64_t heads, int64_t width,
                  const float* weight, float eps, KernelContext& context);

// 1 / sqrt(mean(x^2) + eps) of each head of each row.
//   x: [rows, heads, width], x_stride elements from one row to the next
//   inverse: [rows, heads], inverse_stride elements from one row to the next; may be x itself
void InverseNorms(const float* x, int64_t x_stride, int64_t rows, int64_t heads, int64_t width,
                  float eps, float* inverse, int64_t inverse_stride, KernelContext& context);

// Divides each head of each row by the norm of its first `normed` elements: x / sqrt(mean(x[:
// normed]^2) + eps), in place.
//   x: [rows, heads, width], x_stride elements from one row to the next
void DivideByNorms(float* x, int64_t x_stride, int64_t rows, int64_t heads, int64_t width,
                   int64_t normed, float eps, KernelContext& context);

// (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias (Ba et al. 2016, arXiv:1607.06450).
//   weight: [width]   bias: [width], or null
void LayerNormRows(const float* x, int64_t x_stride, int64_t rows, int64_t width,
                   const float* weight, const float* bias, float eps, float* y, int64_t y_stride,
                   KernelContext& context);

}  // namespace triptych::kernels

#endif  // TRIPTYCH_ENGINE_KERNELS_NORM_H_
