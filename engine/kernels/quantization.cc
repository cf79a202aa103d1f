#include "engine/kernels/quantization.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "engine/base/bfloat16.h"

// Compiled once for each instruction set; the best one is chosen at run time. No set may fuse
// multiplications with additions (CMakeLists.txt), so that all of them choose the same bits.
#include "engine/kernels/instruction_sets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/quantization.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef TRIPTYCH_ENGINE_KERNELS_QUANTIZATION_RANGE
#define TRIPTYCH_ENGINE_KERNELS_QUANTIZATION_RANGE
namespace triptych::kernels {
namespace {

constexpr int kScales = 16;  // that are computed together
using Group = std::array<float, kQuantizationGroup>;
using Scales = std::array<float, kScales>;

// The integers of a format.
struct Range {
  float least;
  float most;
  int tries;  // scales
  bool four_bits;
};

}  // namespace
}  // namespace triptych::kernels
#endif  // TRIPTYCH_ENGINE_KERNELS_QUANTIZATION_RANGE

HWY_BEFORE_NAMESPACE();
namespace triptych::kernels {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
// Lanes are weights, or scales.
using WeightTag = hn::CappedTag<float, 8>;
using ScaleTag = hn::CappedTag<float, kScales>;

// The integer in the range nearest to weight * inverse, ties to even. Adding kNoFraction leaves no
// room for a fraction.
template <typename Tag, typename Vec = hn::Vec<Tag>>
HWY_INLINE Vec Nearest(Tag d, Vec weight, Vec inverse, const Range& range) {
  const Vec no_fraction = hn::Set(d, 0x1.8p23f);
  const Vec steps =
      hn::Min(hn::Max(hn::Mul(weight, inverse), hn::Set(d, range.least)), hn::Set(d, range.most));
  return hn::Sub(hn::Add(steps, no_fraction), no_fraction);
}

// The first weight of the largest magnitude.
HWY_INLINE float Largest(const Group& weights) {
  const WeightTag d;
  auto most = hn::Zero(d);
  for (int i = 0; i < kQuantizationGroup; i += static_cast<int>(hn::Lanes(d))) {
    most = hn::Max(most, hn::Abs(hn::LoadU(d, &weights[i])));
  }
  const auto largest = hn::MaxOfLanes(d, most);
  for (int i = 0; i < kQuantizationGroup; i += static_cast<int>(hn::Lanes(d))) {
    const intptr_t found =
        hn::FindFirstTrue(d, hn::Eq(hn::Abs(hn::LoadU(d, &weights[i])), largest));
    if (found >= 0) return weights[i + found];
  }
  return 0;  // a weight is not a number
}

template <typename Tag, typename Vec = hn::Vec<Tag>>
HWY_INLINE auto IsNormal(Tag d, Vec x) {
  const Vec magnitude = hn::Abs(x);
  return hn::And(hn::Ge(magnitude, hn::Set(d, std::numeric_limits<float>::min())),
                 hn::Le(magnitude, hn::Set(d, std::numeric_limits<float>::max())));
}

// The scales weight / steps, rounded to bfloat16 as ToBFloat16 does, or 0 if they are not usable.
HWY_INLINE void DivideBySteps(float weight, const Scales& steps, const Range& range,
                              Scales& scales) {
  const ScaleTag d;
  const hn::RebindToUnsigned<ScaleTag> bits_tag;
  for (int i = 0; i < kScales; i += static_cast<int>(hn::Lanes(d))) {
    const auto exact = hn::Div(hn::Set(d, weight), hn::LoadU(d, &steps[i]));
    const auto bits = hn::BitCast(bits_tag, exact);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(bits_tag, 1));
    const auto above = hn::Add(hn::Add(bits, hn::Set(bits_tag, 0x7fff)), odd);
    const auto scale = hn::BitCast(d, hn::And(above, hn::Set(bits_tag, 0xffff0000)));
    const auto inverse = hn::Div(hn::Set(d, 1.0f), scale);
    const auto last = hn::Abs(hn::Mul(scale, hn::Set(d, range.least)));
    const auto usable = hn::And(hn::And(IsNormal(d, scale), IsNormal(d, inverse)),
                                hn::Le(last, hn::Set(d, std::numeric_limits<float>::max())));
    hn::StoreU(hn::IfThenElseZero(usable, scale), d, &scales[i]);
  }
}

// Whether every weight is an integer times the scale, up to a relative error of `share`.
HWY_INLINE bool Holds(const Group& weights, float scale, const Range& range, float share) {
  const WeightTag d;
  const auto scales = hn::Set(d, scale), inverses = hn::Set(d, 1 / scale);
  for (int i = 0; i < kQuantizationGroup; i += static_cast<int>(hn::Lanes(d))) {
    const auto weight = hn::LoadU(d, &weights[i]);
    const auto held = hn::Mul(Nearest(d, weight, inverses, range), scales);
    const auto allowed = hn::Mul(hn::Set(d, share), hn::Abs(weight));
    if (!hn::AllTrue(d, hn::Le(hn::Abs(hn::Sub(held, weight)), allowed))) return false;
  }
  return true;
}

// The scale of weights that were rounded to four bits before, or 0 if they were not. If they were
// multiplied by a factor since, they keep their integers, and the scale is rounded to bfloat16
// again.
HWY_INLINE float KnownScale(const Group& weights, float largest, const Range& range) {
  constexpr Scales kIntegers = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
  Scales scales;
  DivideBySteps(largest, kIntegers, range, scales);
  for (const float share : {0.0f, 0x1p-8f}) {
    for (int i = 0; i < kScales; ++i) {
      // The largest weight alone decides most cases: it is this integer under this scale.
      const float miss = std::abs(kIntegers[i] * scales[i] - largest);
      if (scales[i] == 0 || miss > share * std::abs(largest)) continue;
      if (Holds(weights, scales[i], range, share)) return scales[i];
    }
  }
  return 0;
}

// The sum of squared errors under each scale. Each of eight sums has every eighth weight.
HWY_INLINE void SquaredErrors(const Group& weights, const Scales& scales, const Range& range,
                              Scales& errors) {
  constexpr int kSums = 8;
  const ScaleTag d;
  for (int s = 0; s < kScales; s += static_cast<int>(hn::Lanes(d))) {
    const auto scale = hn::LoadU(d, &scales[s]);
    const auto inverse = hn::Div(hn::Set(d, 1.0f), scale);
    auto error = hn::Zero(d);
    for (int sum = 0; sum < kSums; ++sum) {
      auto own = hn::Zero(d);
      for (int i = sum; i < kQuantizationGroup; i += kSums) {
        const auto weight = hn::Set(d, weights[i]);
        const auto held = hn::Mul(Nearest(d, weight, inverse, range), scale);
        const auto miss = hn::Sub(held, weight);
        own = hn::Add(own, hn::Mul(miss, miss));
      }
      error = hn::Add(error, own);
    }
    hn::StoreU(error, d, &errors[s]);
  }
}

// The scale with the least error of those tried, or 0 if none is usable. The weight of the largest
// magnitude becomes the least integer, as negative integers may reach one further, or is clipped to
// it: finer steps for the rest may gain more than the clipping costs. int8 gains nothing from
// clipping.
HWY_INLINE float BestScale(const Group& weights, float largest, const Range& range) {
  Scales steps, scales, errors;
  for (int i = 0; i < kScales; ++i) {
    steps[i] = range.least * (1 + 0.025f * static_cast<float>(i));
  }
  DivideBySteps(largest, steps, range, scales);
  if (range.tries == 1) return scales[0];
  SquaredErrors(weights, scales, range, errors);
  int best = -1;
  for (int i = 0; i < range.tries; ++i) {
    if (scales[i] != 0 && (best < 0 || errors[i] < errors[best])) best = i;
  }
  return best < 0 ? 0 : scales[best];
}

// Returns the scale, or 0 if all integers are zero.
float QuantizeGroup(const Group& weights, const Range& range, Group& integers) {
  const float largest = Largest(weights);
  float scale = range.four_bits ? KnownScale(weights, largest, range) : 0;
  if (scale == 0) scale = BestScale(weights, largest, range);
  const WeightTag d;
  const auto inverse = hn::Set(d, scale == 0 ? 0 : 1 / scale);
  for (int i = 0; i < kQuantizationGroup; i += static_cast<int>(hn::Lanes(d))) {
    hn::StoreU(Nearest(d, hn::LoadU(d, &weights[i]), inverse, range), d, &integers[i]);
  }
  return scale;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace triptych::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace triptych::kernels {
namespace {

HWY_EXPORT(QuantizeGroup);

Range RangeOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kInt8:
      return {.least = -127, .most = 127, .tries = 1, .four_bits = false};
    case WeightFormat::kInt4:
      return {.least = -8, .most = 7, .tries = kScales, .four_bits = true};
    case WeightFormat::kFloat32:
    case WeightFormat::kBFloat16:
      break;
  }
  throw std::invalid_argument(std::string(Name(format)) +
                              " is not an integer format; allowed: int8, int4");
}

}  // namespace

uint16_t Quantize(WeightFormat format, std::span<const float> weights, std::span<int8_t> integers) {
  Group group{}, rounded;
  std::copy(weights.begin(), weights.end(), group.begin());
  const float scale = HWY_DYNAMIC_DISPATCH(QuantizeGroup)(group, RangeOf(format), rounded);
  std::transform(rounded.begin(), rounded.begin() + std::ssize(weights), integers.begin(),
                 [](float integer) { return static_cast<int8_t>(integer); });
  return ToBFloat16(scale);
}

}  // namespace triptych::kernels
#endif  // HWY_ONCE
