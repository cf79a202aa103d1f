#include "client/length_distribution.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "client/ranges.h"
#include "engine/base/request_limits.h"

namespace triptych::client {
namespace {

constexpr Range<int32_t> kTokens = {1, limits::kInt32Max};
constexpr Range<double> kSigma = {0, 10, /*above_low=*/true};
constexpr std::string_view kLognormal = "lognormal:";

}  // namespace

double DrawUnit(Random& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

int64_t DrawUniform(int64_t low, int64_t high, Random& random) {
  const auto count = static_cast<double>(high - low) + 1;
  return std::min(high, low + static_cast<int64_t>(DrawUnit(random) * count));
}

double DrawExponential(double rate, Random& random) {
  return -std::log1p(-DrawUnit(random)) / rate;
}

double DrawNormal(Random& random) {
  const double radius = std::sqrt(-2 * std::log1p(-DrawUnit(random)));  // Box and Muller
  return radius * std::cos(2 * std::numbers::pi * DrawUnit(random));
}

std::optional<LengthDistribution> LengthDistribution::Parse(std::string_view text) {
  const bool lognormal = text.starts_with(kLognormal);
  if (lognormal) text.remove_prefix(kLognormal.size());
  const size_t colon = text.find(':');
  const auto first = ParseInRange(text.substr(0, colon), kTokens);
  if (!first) return std::nullopt;
  if (colon == text.npos) {
    return lognormal ? std::nullopt : std::optional(LengthDistribution(*first));
  }
  const std::string_view rest = text.substr(colon + 1);
  if (lognormal) {
    const auto sigma = ParseInRange(rest, kSigma);
    return sigma ? std::optional(LengthDistribution(*first, *first, *sigma)) : std::nullopt;
  }
  const auto high = ParseInRange(rest, kTokens);
  if (!high || *high < *first) return std::nullopt;
  return LengthDistribution(*first, *high, 0);
}

int32_t LengthDistribution::Draw(Random& random) const {
  if (sigma_ == 0) return static_cast<int32_t>(DrawUniform(low_, high_, random));
  const double length = low_ * std::exp(sigma_ * DrawNormal(random));
  return static_cast<int32_t>(std::clamp(std::round(length), 1.0, double{limits::kInt32Max}));
}

}  // namespace triptych::client
