#include "engine/kernels/quantization.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "engine/base/bfloat16.h"

namespace triptych {
namespace {

struct Range {
  float least;
  float most;
};

Range RangeOf(WeightFormat format) {
  if (format == WeightFormat::kInt8) return {.least = -127, .most = 127};
  return {.least = -8, .most = 7};
}

// The integer nearest to a weight under a scale.
float Nearest(float weight, float scale, const Range& range) {
  return std::clamp(std::nearbyint(weight / scale), range.least, range.most);
}

}  // namespace

uint16_t Quantize(WeightFormat format, std::span<const float> weights, std::span<int8_t> integers) {
  const Range range = RangeOf(format);
  const float largest = *std::max_element(
      weights.begin(), weights.end(), [](float a, float b) { return std::abs(a) < std::abs(b); });
  // The largest weight becomes the least integer, of which there may be one more than of the
  // others, or a little more than that: what clipping it costs, finer steps may gain for the rest.
  // Eight bits gain nothing by that.
  const int tries = format == WeightFormat::kInt8 ? 1 : 16;
  uint16_t best = 0;
  double least_error = std::numeric_limits<double>::infinity();
  for (int i = 0; i < tries; ++i) {
    const uint16_t bits =
        ToBFloat16(largest / (range.least * (1 + 0.025f * static_cast<float>(i))));
    const float scale = FromBFloat16(bits);
    if (scale == 0 || !std::isfinite(scale)) continue;
    double error = 0;
    for (const float weight : weights) {
      const double miss = Nearest(weight, scale, range) * scale - weight;
      error += miss * miss;
    }
    if (error < least_error) {
      least_error = error;
      best = bits;
    }
  }
  const float scale = FromBFloat16(best);
  for (size_t i = 0; i < weights.size(); ++i) {
    integers[i] = scale == 0 ? 0 : static_cast<int8_t>(Nearest(weights[i], scale, range));
  }
  return best;
}

}  // namespace triptych
