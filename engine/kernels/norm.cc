#include "engine/kernels/norm.h"

#include <cmath>

// Compiled once for each instruction set; the best one is chosen at run time.
#include "engine/kernels/instruction_sets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/norm.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace triptych::kernels {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::Vec<FloatTag>;

HWY_INLINE float Sum(const float* x, int64_t width) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  FloatVec sums = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= width; i += lanes) sums = hn::Add(hn::LoadU(d, x + i), sums);
  float sum = hn::GetLane(hn::SumOfLanes(d, sums));
  for (; i < width; ++i) sum += x[i];
  return sum;
}

// The mean of (x - centre)^2.
HWY_INLINE float MeanSquare(const float* x, int64_t width, float centre) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const FloatVec centres = hn::Set(d, centre);
  FloatVec sums = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= width; i += lanes) {
    const FloatVec difference = hn::Sub(hn::LoadU(d, x + i), centres);
    sums = hn::MulAdd(difference, difference, sums);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, sums));
  for (; i < width; ++i) sum += (x[i] - centre) * (x[i] - centre);
  return sum / static_cast<float>(width);
}

float InverseNorm(const float* x, int64_t width, float eps) {
  return 1 / std::sqrt(MeanSquare(x, width, 0) + eps);
}

void RmsNormRow(const float* x, int64_t width, const float* weight, float eps, float* y) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const float factor = InverseNorm(x, width, eps);
  const FloatVec factors = hn::Set(d, factor);
  int64_t i = 0;
  for (; i + lanes <= width; i += lanes) {
    const FloatVec scaled = hn::Mul(hn::LoadU(d, x + i), factors);
    hn::StoreU(hn::Mul(scaled, hn::LoadU(d, weight + i)), d, y + i);
  }
  for (; i < width; ++i) y[i] = x[i] * factor * weight[i];
}

void LayerNormRow(const float* x, int64_t width, const float* weight, const float* bias, float eps,
                  float* y) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const float mean = Sum(x, width) / static_cast<float>(width);
  const float factor = 1 / std::sqrt(MeanSquare(x, width, mean) + eps);
  const FloatVec means = hn::Set(d, mean), factors = hn::Set(d, factor);
  int64_t i = 0;
  for (; i + lanes <= width; i += lanes) {
    const FloatVec scaled = hn::Mul(hn::Sub(hn::LoadU(d, x + i), means), factors);
    const FloatVec shift = bias == nullptr ? hn::Zero(d) : hn::LoadU(d, bias + i);
    hn::StoreU(hn::MulAdd(scaled, hn::LoadU(d, weight + i), shift), d, y + i);
  }
  for (; i < width; ++i) {
    y[i] = (x[i] - mean) * factor * weight[i] + (bias == nullptr ? 0 : bias[i]);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace triptych::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace triptych::kernels {
namespace {

HWY_EXPORT(InverseNorm);
HWY_EXPORT(RmsNormRow);
HWY_EXPORT(LayerNormRow);

// Approximate cost of one element, in multiply-adds.
constexpr int64_t kElementWork = 2;

}  // namespace

void RmsNormRows(const float* x, int64_t x_stride, int64_t rows, int64_t width, const float* weight,
                 float eps, float* y, int64_t y_stride, KernelContext& context) {
  context.pool.ForEach(rows, rows * width * kElementWork, [&](int64_t row) {
    HWY_DYNAMIC_DISPATCH(RmsNormRow)(x + row * x_stride, width, weight, eps, y + row * y_stride);
  });
}

void RmsNormHeads(float* x, int64_t x_stride, int64_t rows, int64_t heads, int64_t width,
                  const float* weight, float eps, KernelContext& context) {
  context.pool.ForEach(rows, rows * heads * width * kElementWork, [&](int64_t row) {
    float* head = x + row * x_stride;
    for (int64_t i = 0; i < heads; ++i, head += width) {
      HWY_DYNAMIC_DISPATCH(RmsNormRow)(head, width, weight, eps, head);
    }
  });
}

void InverseNorms(const float* x, int64_t x_stride, int64_t rows, int64_t heads, int64_t width,
                  float eps, float* inverse, int64_t inverse_stride, KernelContext& context) {
  context.pool.ForEach(rows, rows * heads * width * kElementWork, [&](int64_t row) {
    for (int64_t i = 0; i < heads; ++i) {
      inverse[row * inverse_stride + i] =
          HWY_DYNAMIC_DISPATCH(InverseNorm)(x + row * x_stride + i * width, width, eps);
    }
  });
}

void DivideByNorms(float* x, int64_t x_stride, int64_t rows, int64_t heads, int64_t width,
                   int64_t normed, float eps, KernelContext& context) {
  context.pool.ForEach(rows, rows * heads * width * kElementWork, [&](int64_t row) {
    float* head = x + row * x_stride;
    for (int64_t i = 0; i < heads; ++i, head += width) {
      const float inverse = HWY_DYNAMIC_DISPATCH(InverseNorm)(head, normed, eps);
      for (int64_t c = 0; c < width; ++c) head[c] *= inverse;
    }
  });
}

void LayerNormRows(const float* x, int64_t x_stride, int64_t rows, int64_t width,
                   const float* weight, const float* bias, float eps, float* y, int64_t y_stride,
                   KernelContext& context) {
  context.pool.ForEach(rows, rows * width * kElementWork, [&](int64_t row) {
    HWY_DYNAMIC_DISPATCH(LayerNormRow)
    (x + row * x_stride, width, weight, bias, eps, y + row * y_stride);
  });
}

}  // namespace triptych::kernels
#endif  // HWY_ONCE
