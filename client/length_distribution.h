#ifndef TRIPTYCH_CLIENT_LENGTH_DISTRIBUTION_H_
#define TRIPTYCH_CLIENT_LENGTH_DISTRIBUTION_H_

#include <cstdint>
#include <optional>
#include <random>
#include <string_view>

namespace triptych::client {

// What a load is drawn with. Its numbers, unlike those of the library's distributions, are the same
// everywhere, so that a seed names a load.
using Random = std::mt19937_64;

double DrawUnit(Random& random);                                 // In [0, 1).
int64_t DrawUniform(int64_t low, int64_t high, Random& random);  // low <= result <= high
double DrawExponential(double rate, Random& random);             // Mean 1 / rate.
double DrawNormal(Random& random);                               // Mean 0, deviation 1.

// How many tokens a prompt or an output has, at least 1.
class LengthDistribution {
 public:
  explicit LengthDistribution(int32_t tokens) : low_(tokens), high_(tokens) {}

  // "128", "64:512" (uniform, both included) or "lognormal:MEDIAN:SIGMA", SIGMA that of the natural
  // logarithm, up to 10. Nothing for any other text.
  static std::optional<LengthDistribution> Parse(std::string_view text);

  int32_t Draw(Random& random) const;
  // The least that is ever drawn.
  int32_t low() const { return sigma_ > 0 ? 1 : low_; }

 private:
  LengthDistribution(int32_t low, int32_t high, double sigma)
      : low_(low), high_(high), sigma_(sigma) {}

  int32_t low_;  // The median, if sigma is given.
  int32_t high_;
  double sigma_ = 0;  // Above 0: log-normal.
};

}  // namespace triptych::client

#endif  // TRIPTYCH_CLIENT_LENGTH_DISTRIBUTION_H_
