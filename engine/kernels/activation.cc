#include "engine/kernels/activation.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>

// Compiled once for each instruction set; the best one is chosen at run time.
#include "engine/kernels/instruction_sets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/activation.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/base/ceil_div.h"
#include "engine/kernels/power-inl.h"
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace triptych::kernels {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using FloatTag = hn::CappedTag<float, 16>;
using FloatVec = hn::Vec<FloatTag>;

// g / (1 + exp(-s)); zero where -s > 88, near the overflow of exp in float32.
HWY_INLINE FloatVec TimesSigmoid(FloatVec g, FloatVec s) {
  const FloatTag d;
  const FloatVec limit = hn::Set(d, 88.0f);
  const FloatVec power = hn::Neg(s);
  const FloatVec bounded = hn::Max(hn::Min(power, limit), hn::Neg(limit));
  const FloatVec product = hn::Div(g, hn::Add(hn::Set(d, 1.0f), hn::Exp(d, bounded)));
  return hn::IfThenElse(hn::Gt(power, limit), hn::Zero(d), product);
}

HWY_INLINE FloatVec SiluOf(FloatVec x) { return TimesSigmoid(x, x); }
HWY_INLINE FloatVec GeluTanhOf(FloatVec x) {
  const FloatTag d;
  // (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u))
  const FloatVec twice =
      hn::Set(d, static_cast<float>(2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi));
  const FloatVec cubic = hn::MulAdd(hn::Mul(hn::Set(d, 0.044715f), hn::Mul(x, x)), x, x);
  return TimesSigmoid(x, hn::Mul(twice, cubic));
}
// Not-a-number is not at most zero: it stays.
HWY_INLINE FloatVec SquaredReluOf(FloatVec x) {
  const FloatVec zero = hn::Zero(FloatTag());
  return hn::IfThenElse(hn::Le(x, zero), zero, hn::Mul(x, x));
}

// Zero-padded copy of a row's last, partial vector: its elements are computed by the same
// instructions as all others.
struct Padded {
  explicit Padded(const float* from, int64_t count) { std::copy_n(from, count, values); }
  float values[16] = {};
};

// x = activated(x)
template <typename Activated>
HWY_INLINE void MapRow(float* x, int64_t width, Activated activated) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= width; i += lanes) hn::StoreU(activated(hn::LoadU(d, x + i)), d, x + i);
  if (i == width) return;
  Padded last(x + i, width - i);
  hn::StoreU(activated(hn::LoadU(d, last.values)), d, last.values);
  std::copy_n(last.values, width - i, x + i);
}

// y = activated(gate) * up
template <typename Activated>
HWY_INLINE void GatedRow(const float* gate, const float* up, int64_t width, float* y,
                         Activated activated) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto gated = [&](const float* g, const float* u, float* to) HWY_ATTR {
    hn::StoreU(hn::Mul(activated(hn::LoadU(d, g)), hn::LoadU(d, u)), d, to);
  };
  int64_t i = 0;
  for (; i + lanes <= width; i += lanes) gated(gate + i, up + i, y + i);
  if (i == width) return;
  Padded last(gate + i, width - i);
  const Padded last_up(up + i, width - i);
  gated(last.values, last_up.values, last.values);
  std::copy_n(last.values, width - i, y + i);
}

void GatedSiluRow(const float* gate, const float* up, int64_t width, float* y) {
  GatedRow(gate, up, width, y, [](FloatVec x) HWY_ATTR { return SiluOf(x); });
}

void GatedGeluTanhRow(const float* gate, const float* up, int64_t width, float* y) {
  GatedRow(gate, up, width, y, [](FloatVec x) HWY_ATTR { return GeluTanhOf(x); });
}

void SoftcapPart(float* x, int64_t count, float cap) {
  MapRow(x, count, [cap](FloatVec v) HWY_ATTR {
    const FloatTag d;
    const FloatVec c = hn::Set(d, cap);
    return hn::Mul(c, TanhOf(d, hn::Div(v, c)));
  });
}

void GeluTanhRow(float* x, int64_t width) {
  MapRow(x, width, [](FloatVec z) HWY_ATTR { return GeluTanhOf(z); });
}

void SquaredReluRow(float* x, int64_t width) {
  MapRow(x, width, [](FloatVec z) HWY_ATTR { return SquaredReluOf(z); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace triptych::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace triptych::kernels {
namespace {

HWY_EXPORT(GatedSiluRow);
HWY_EXPORT(GatedGeluTanhRow);
HWY_EXPORT(GeluTanhRow);
HWY_EXPORT(SquaredReluRow);
HWY_EXPORT(SoftcapPart);

// Approximate cost of one element with an exponential, in multiply-adds.
constexpr int64_t kElementWork = 32;

}  // namespace

void GatedSilu(const float* gate_up, int64_t rows, int64_t width, float* y,
               KernelContext& context) {
  context.pool.ForEach(rows, rows * width * kElementWork, [&](int64_t row) {
    const float* gate = gate_up + row * 2 * width;
    HWY_DYNAMIC_DISPATCH(GatedSiluRow)(gate, gate + width, width, y + row * width);
  });
}

void GatedGeluTanh(const float* gate_up, int64_t rows, int64_t width, float* y,
                   KernelContext& context) {
  context.pool.ForEach(rows, rows * width * kElementWork, [&](int64_t row) {
    const float* gate = gate_up + row * 2 * width;
    HWY_DYNAMIC_DISPATCH(GatedGeluTanhRow)(gate, gate + width, width, y + row * width);
  });
}

void GeluTanh(float* x, int64_t rows, int64_t width, KernelContext& context) {
  context.pool.ForEach(rows, rows * width * kElementWork, [&](int64_t row) {
    HWY_DYNAMIC_DISPATCH(GeluTanhRow)(x + row * width, width);
  });
}

void Gelu(float* x, int64_t rows, int64_t width, KernelContext& context) {
  constexpr float kScale = 1 / std::numbers::sqrt2_v<float>;
  context.pool.ForEach(rows, rows * width * kElementWork, [&](int64_t row) {
    for (float& g : std::span(x + row * width, width)) g = g / 2 * (1 + std::erf(g * kScale));
  });
}

void SquaredRelu(float* x, int64_t rows, int64_t width, KernelContext& context) {
  context.pool.ForEach(rows, rows * width, [&](int64_t row) {
    HWY_DYNAMIC_DISPATCH(SquaredReluRow)(x + row * width, width);
  });
}

void Softcap(float* x, int64_t count, float cap, KernelContext& context) {
  constexpr int64_t kPart = 4096;
  context.pool.ForEach(CeilDiv(count, kPart), count * kElementWork, [&](int64_t i) {
    const int64_t begin = i * kPart;
    HWY_DYNAMIC_DISPATCH(SoftcapPart)(x + begin, std::min(kPart, count - begin), cap);
  });
}

}  // namespace triptych::kernels
#endif  // HWY_ONCE
