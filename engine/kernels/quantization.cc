#include "engine/kernels/quantization.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "engine/base/bfloat16.h"

namespace triptych::kernels {
namespace {

using Group = std::array<float, kQuantizationGroup>;

struct Range {
  float least;
  float most;
  int tries;  // scales
};

// The weight of the largest magnitude becomes the least integer, as negative integers may reach one
// further, or is clipped to it: finer steps for the rest may gain more than the clipping costs.
// int8 gains nothing from clipping.
Range RangeOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kInt8:
      return {.least = -127, .most = 127, .tries = 1};
    case WeightFormat::kInt4:
      return {.least = -8, .most = 7, .tries = 16};
    case WeightFormat::kFloat32:
    case WeightFormat::kBFloat16:
      break;
  }
  throw std::invalid_argument(std::string(Name(format)) +
                              " is not an integer format; allowed: int8, int4");
}

// The integer in the range nearest to weight * inverse, ties to even. Adding kNoFraction leaves no
// room for a fraction.
float Nearest(float weight, float inverse, const Range& range) {
  constexpr float kNoFraction = 0x1.8p23f;
  const float steps = std::min(std::max(weight * inverse, range.least), range.most);
  return (steps + kNoFraction) - kNoFraction;
}

// The sum of the squared errors, in lanes that compilers vectorise.
float SquaredError(const Group& weights, float scale, const Range& range) {
  constexpr int kLanes = 8;
  const float inverse = 1 / scale;
  std::array<float, kLanes> errors{};
  for (int i = 0; i < kQuantizationGroup; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const float weight = weights[i + lane];
      const float miss = Nearest(weight, inverse, range) * scale - weight;
      errors[lane] += miss * miss;
    }
  }
  float error = 0;
  for (const float of_lane : errors) error += of_lane;
  return error;
}

// Whether every weight is an integer times the scale, up to a relative error of `share`.
bool Holds(const Group& weights, float scale, const Range& range, float share) {
  const float inverse = 1 / scale;
  return std::all_of(weights.begin(), weights.end(), [&](float weight) {
    return std::abs(Nearest(weight, inverse, range) * scale - weight) <= share * std::abs(weight);
  });
}

// The bits of the scale weight / steps, or 0 if it is not usable.
uint16_t ScaleBits(float weight, float steps, const Range& range) {
  const uint16_t bits = ToBFloat16(weight / steps);
  const float scale = FromBFloat16(bits);
  const bool usable =
      std::isnormal(scale) && std::isnormal(1 / scale) && std::isfinite(scale * range.least);
  return usable ? bits : 0;
}

// The scale of weights that were rounded to four bits before, or 0 if they were not. If they were
// multiplied by a factor since, they keep their integers, and the scale is rounded to bfloat16
// again.
uint16_t KnownScale(const Group& weights, float largest, const Range& range) {
  const auto least = static_cast<int>(range.least), most = static_cast<int>(range.most);
  for (const float share : {0.0f, 0x1p-8f}) {
    for (int integer = least; integer <= most; ++integer) {
      const uint16_t bits = ScaleBits(largest, static_cast<float>(integer), range);
      if (bits != 0 && Holds(weights, FromBFloat16(bits), range, share)) return bits;
    }
  }
  return 0;
}

// The scale with the least error of those tried, or 0 if none is usable.
uint16_t BestScale(const Group& weights, float largest, const Range& range) {
  uint16_t best = 0;
  float least_error = std::numeric_limits<float>::infinity();
  for (int i = 0; i < range.tries; ++i) {
    const uint16_t bits =
        ScaleBits(largest, range.least * (1 + 0.025f * static_cast<float>(i)), range);
    if (bits == 0) continue;
    const float error = SquaredError(weights, FromBFloat16(bits), range);
    if (best == 0 || error < least_error) {
      best = bits;
      least_error = error;
    }
  }
  return best;
}

}  // namespace

uint16_t Quantize(WeightFormat format, std::span<const float> weights, std::span<int8_t> integers) {
  const Range range = RangeOf(format);
  Group group{};
  std::copy(weights.begin(), weights.end(), group.begin());
  const float largest = *std::max_element(
      group.begin(), group.end(), [](float a, float b) { return std::abs(a) < std::abs(b); });
  uint16_t bits = format == WeightFormat::kInt4 ? KnownScale(group, largest, range) : 0;
  if (bits == 0) bits = BestScale(group, largest, range);
  const float inverse = 1 / FromBFloat16(bits);
  for (size_t i = 0; i < weights.size(); ++i) {
    integers[i] = bits == 0 ? 0 : static_cast<int8_t>(Nearest(weights[i], inverse, range));
  }
  return bits;
}

}  // namespace triptych::kernels
