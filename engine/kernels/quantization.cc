#include "engine/kernels/quantization.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "engine/base/bfloat16.h"

namespace triptych {
namespace {

using Group = std::array<float, kQuantizationGroup>;

struct Range {
  float least;
  float most;
  int tries;  // scales
};

// The largest weight becomes the least integer, of which there may be one more than of the others,
// or a little more than that: what clipping it costs, finer steps may gain for the rest. Eight bits
// gain nothing by that.
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
  throw std::invalid_argument(std::string(Name(format)) + " has no integers");
}

// The integer nearest to a weight under 1 / scale, ties to even: adding this number leaves no room
// for a fraction.
float Nearest(float weight, float inverse, const Range& range) {
  constexpr float kNoFraction = 0x1.8p23f;
  const float steps = std::min(std::max(weight * inverse, range.least), range.most);
  return (steps + kNoFraction) - kNoFraction;
}

// The sum of the squared errors, in lanes that compilers make vectors of.
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

}  // namespace

uint16_t Quantize(WeightFormat format, std::span<const float> weights, std::span<int8_t> integers) {
  const Range range = RangeOf(format);
  Group group{};
  std::copy(weights.begin(), weights.end(), group.begin());
  const float largest = *std::max_element(
      group.begin(), group.end(), [](float a, float b) { return std::abs(a) < std::abs(b); });
  uint16_t best = 0;
  float scale = 0, least_error = std::numeric_limits<float>::infinity();
  for (int i = 0; i < range.tries; ++i) {
    const float steps = range.least * (1 + 0.025f * static_cast<float>(i));
    const uint16_t bits = ToBFloat16(largest / steps);
    const float tried = FromBFloat16(bits);
    if (!std::isnormal(tried) || !std::isnormal(1 / tried)) continue;
    if (!std::isfinite(tried * range.least)) continue;
    const float error = SquaredError(group, tried, range);
    if (best == 0 || error < least_error) {
      best = bits;
      scale = tried;
      least_error = error;
    }
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    integers[i] = best == 0 ? 0 : static_cast<int8_t>(Nearest(weights[i], 1 / scale, range));
  }
  return best;
}

}  // namespace triptych
