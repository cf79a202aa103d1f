// Distributions of token counts, with reproducible random numbers.
#ifndef TRIPTYCH_CLIENT_LENGTH_DISTRIBUTION_H_
#define TRIPTYCH_CLIENT_LENGTH_DISTRIBUTION_H_

#include <cstdint>
#include <optional>
#include <random>
#include <string_view>

namespace triptych::client {

// Random numbers of a load. Unlike the standard library's distributions, they are the same on every
// platform, so that a seed determines a load.
using Random = std::mt19937_64;

double DrawUnit(Random& random);                                 // in [0, 1)
int64_t DrawUniform(int64_t low, int64_t high, Random& random);  // low <= result <= high
double DrawExponential(double rate, Random& random);             // mean 1 / rate
double DrawNormal(Random& random);                               // mean 0, deviation 1

// Distribution of the tokens of a prompt or an output, at least 1.
class LengthDistribution {
 public:
  explicit LengthDistribution(int32_t tokens) : low_(tokens), high_(tokens) {}

  // Parses "128", "64:512" (uniform, inclusive) or "lognormal:MEDIAN:SIGMA". SIGMA is the deviation
  // of the natural logarithm, above 0 and up to 10. nullopt for other texts.
  static std::optional<LengthDistribution> Parse(std::string_view text);

  int32_t Draw(Random& random) const;
  // The least value that can be drawn.
  int32_t low() const { return sigma_ > 0 ? 1 : low_; }

 private:
  LengthDistribution(int32_t low, int32_t high, double sigma)
      : low_(low), high_(high), sigma_(sigma) {}

  int32_t low_;  // the median if sigma_ is above 0
  int32_t high_;
  double sigma_ = 0;  // above 0: log-normal
};

}  // namespace triptych::client

#endif  // TRIPTYCH_CLIENT_LENGTH_DISTRIBUTION_H_
