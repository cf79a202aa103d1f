#include "engine/kernels/logits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "engine/base/ceil_div.h"
#include "tests/support/instruction_sets.h"

namespace triptych::kernels::logits_test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kMax = std::numeric_limits<float>::max();
constexpr float kGuard = 12345.0f;

// Around the widths of vectors and of one, two and three blocks.
const std::vector<int64_t> kCounts = {1,
                                      2,
                                      3,
                                      15,
                                      16,
                                      17,
                                      kLogitBlock - 1,
                                      kLogitBlock,
                                      kLogitBlock + 1,
                                      2 * kLogitBlock,
                                      3 * kLogitBlock - 5,
                                      1000};

// Logits that need no replacement: with few different values, both zeros, and the extremes.
std::vector<float> Usable(int64_t count, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal(0, 4);
  std::vector<float> logits(count);
  for (float& logit : logits) {
    logit = generator() % 2 == 0 ? std::round(normal(generator)) : normal(generator);
    if (generator() % 50 == 0) logit = generator() % 2 == 0 ? 0.0f : -0.0f;
    if (generator() % 100 == 0) logit = generator() % 2 == 0 ? -kMax : -1e-40f;
  }
  return logits;
}

// The same, with some that are replaced by other values.
std::vector<float> Any(int64_t count, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::vector<float> logits = Usable(count, seed);
  const std::vector<float> others = {kNaN, -kInf, -kNaN, kInf};
  const size_t kinds = seed % 2 == 0 ? 4 : 3;
  for (float& logit : logits) {
    if (generator() % 20 == 0) logit = others[generator() % kinds];
  }
  return logits;
}

float AsItCounts(float logit) { return std::isnan(logit) ? -kInf : std::min(logit, kMax); }

std::vector<float> Maxima(const std::vector<float>& logits) {
  std::vector<float> maxima(CeilDiv(std::ssize(logits), kLogitBlock) + 1, kGuard);
  LogitMaxima(logits.data(), std::ssize(logits), maxima.data());
  EXPECT_EQ(maxima.back(), kGuard);
  maxima.pop_back();
  return maxima;
}

// Cuts at tokens of the row, at the first and the last token, and in between.
std::vector<LikeliestTokens> Cuts(const std::vector<float>& logits, uint64_t seed) {
  std::mt19937_64 generator(seed);
  const auto count = static_cast<int32_t>(logits.size());
  std::vector<LikeliestTokens> cuts = {{}, {.least = 0}, {.least = 3.5f}, {.least = kMax}};
  for (int i = 0; i < 8; ++i) {
    const float least = AsItCounts(logits[generator() % count]);
    if (!std::isfinite(least)) continue;
    cuts.push_back({.least = least, .last = static_cast<int32_t>(generator() % count)});
    cuts.push_back({.least = least, .last = generator() % 2 == 0 ? 0 : count - 1});
  }
  return cuts;
}

double Exact(float logit, const LogitWeight& weight) {
  return std::exp2((static_cast<double>(logit) - weight.largest) * weight.scale);
}
// The header's bound, and an absolute part for weights that underflow.
double Tolerance(float logit, const LogitWeight& weight) {
  const double power = (static_cast<double>(weight.largest) - logit) * weight.scale;
  return power > 124 ? 0x1p-124 : Exact(logit, weight) * (2 + power) * 0x1p-23;
}

using LogitsTest = InstructionSetTest;

TEST_P(LogitsTest, MaximaOfBlocks) {
  for (const int64_t count : kCounts) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      const std::vector<float> logits = Any(count, seed), maxima = Maxima(logits);
      for (size_t b = 0; b < maxima.size(); ++b) {
        float expected = -kInf;
        for (size_t i = b * kLogitBlock; i < std::min((b + 1) * kLogitBlock, logits.size()); ++i) {
          expected = std::max(expected, AsItCounts(logits[i]));
        }
        EXPECT_EQ(maxima[b], expected) << "block " << b << " of " << count << " logits";
      }
    }
  }
  EXPECT_EQ(Maxima(std::vector<float>(300, kNaN)), std::vector<float>(2, -kInf));
}

TEST_P(LogitsTest, WeightsAreAsExactAsPromised) {
  for (const float scale : {1e-3f, 0.7f, 1.44f, 30.0f, kMax}) {
    for (const int64_t count : kCounts) {
      const std::vector<float> logits = Any(count, 1);  // none is +inf
      const float largest = *std::max_element(logits.begin(), logits.end(), [](float a, float b) {
        return AsItCounts(a) < AsItCounts(b);
      });
      if (!std::isfinite(largest)) continue;
      const LogitWeight weight{largest, scale};
      std::vector<float> weights(count + 1, kGuard);
      WeighLogits(logits.data(), count, weight, weights.data());
      EXPECT_EQ(weights.back(), kGuard);
      for (int64_t i = 0; i < count; ++i) {
        if (AsItCounts(logits[i]) == -kInf) {
          EXPECT_EQ(weights[i], 0);
        } else if (logits[i] == largest) {
          EXPECT_EQ(weights[i], 1);
        } else {
          EXPECT_NEAR(weights[i], Exact(logits[i], weight), Tolerance(logits[i], weight))
              << logits[i] << " of " << largest << ", scale " << scale;
        }
      }
    }
  }
}

TEST_P(LogitsTest, InfinityWeighsAsTheLargestFloat) {
  const std::vector<float> logits = {kInf, 1, kMax, kNaN, -kMax};
  std::vector<float> weights(logits.size());
  WeighLogits(logits.data(), std::ssize(logits), {kMax, 1}, weights.data());
  EXPECT_EQ(weights, (std::vector<float>{1, 0, 1, 0, 0}));
}

TEST_P(LogitsTest, SumsAreThoseOfTheLikeliestTokens) {
  for (const int64_t count : kCounts) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      const std::vector<float> logits = Any(count, seed), maxima = Maxima(logits);
      const float largest = *std::max_element(maxima.begin(), maxima.end());
      if (largest == -kInf) continue;
      const LogitWeight weight{largest, 0.5f};
      for (const LikeliestTokens& likeliest : Cuts(logits, seed)) {
        std::vector<double> sums(maxima.size() + 1, kGuard);
        SumLogitWeights(logits.data(), count, maxima.data(), weight, likeliest, sums.data());
        EXPECT_EQ(sums.back(), kGuard);
        for (size_t b = 0; b < maxima.size(); ++b) {
          double expected = 0, tolerance = 0;
          for (int64_t i = b * kLogitBlock; i < std::min<int64_t>((b + 1) * kLogitBlock, count);
               ++i) {
            const float logit = AsItCounts(logits[i]);
            if (logit == -kInf || !likeliest.Hold(static_cast<int32_t>(i), logit)) continue;
            expected += Exact(logit, weight);
            tolerance += Tolerance(logit, weight);
          }
          EXPECT_NEAR(sums[b], expected, tolerance)
              << "block " << b << " of " << count << ", from " << likeliest.least << " up to "
              << likeliest.last;
        }
      }
    }
  }
}

// At every alignment of a row.
TEST_P(LogitsTest, ASumIsTheSameBitsAtEveryAlignment) {
  const std::vector<float> logits = Usable(1000, 1), maxima = Maxima(logits);
  const LogitWeight weight{*std::max_element(maxima.begin(), maxima.end()), 1.44f};
  std::vector<double> sums(maxima.size()), others(maxima.size());
  SumLogitWeights(logits.data(), 1000, maxima.data(), weight, {}, sums.data());
  for (int shift = 1; shift < 16; ++shift) {
    std::vector<float> shifted(1000 + shift);
    std::copy(logits.begin(), logits.end(), shifted.begin() + shift);
    SumLogitWeights(shifted.data() + shift, 1000, maxima.data(), weight, {}, others.data());
    EXPECT_EQ(others, sums);
  }
}

TEST_P(LogitsTest, FindsTheLikeliestTokens) {
  for (const int64_t count : kCounts) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      const std::vector<float> logits = Any(count, seed), maxima = Maxima(logits);
      for (const LikeliestTokens& likeliest : Cuts(logits, seed)) {
        std::vector<int32_t> tokens(count + kLogitBlock);
        std::vector<float> found(count + kLogitBlock);
        Candidates candidates{0, tokens.data(), found.data(), nullptr};
        FindLikeliest(logits.data(), count, maxima.data(), likeliest, candidates);
        std::vector<int32_t> expected;
        for (int32_t i = 0; i < count; ++i) {
          if (likeliest.Hold(i, AsItCounts(logits[i]))) expected.push_back(i);
        }
        tokens.resize(candidates.count);
        ASSERT_EQ(tokens, expected)
            << "of " << count << ", from " << likeliest.least << " up to " << likeliest.last;
        for (size_t i = 0; i < tokens.size(); ++i) {
          EXPECT_EQ(found[i], AsItCounts(logits[tokens[i]]));
        }
      }
    }
  }
}

// The same by its definition, on sorted tokens. `weights` are by token, and integers, so that sums
// are exact.
int32_t LastByDefinition(double enough, const std::vector<float>& logits,
                         const std::vector<float>& weights) {
  std::vector<int32_t> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  double sum = 0;
  for (const int32_t token : order) {
    sum += weights[token];
    if (sum >= enough) return token;
  }
  return order.back();
}

TEST_P(LogitsTest, LastToSumIsThatOfSortedTokens) {
  for (const int64_t count : {1, 2, 5, 16, 17, 300, 5000}) {
    for (uint64_t seed = 0; seed < 6; ++seed) {
      std::vector<float> logits = Usable(count, seed);
      if (seed == 4) std::fill(logits.begin(), logits.end(), -2.5f);
      if (seed == 5) {  // all different, and far apart
        for (int64_t i = 0; i < count; ++i) {
          logits[i] = (i % 2 == 0 ? 1.0f : -1.0f) * std::exp2(static_cast<float>(i % 250) - 125) *
                      (1 + static_cast<float>(i) * 0x1p-13f);
        }
      }
      std::vector<float> weights(count, 1);
      if (seed % 2 == 1) {  // equal logits have equal weights, larger logits larger weights
        for (int64_t i = 0; i < count; ++i) {
          weights[i] = std::floor(std::clamp(logits[i], -8.0f, 8.0f)) + 9;
        }
      }
      double total = 0;
      for (const float weight : weights) total += weight;
      for (const double enough :
           {0.5, 1.0, 2.0, total / 3, total / 2, total - 1, total, 2 * total}) {
        if (enough <= 0) continue;
        std::vector<int32_t> tokens(count + kLogitBlock);
        std::vector<float> some = logits, some_weights = weights;
        for (int64_t i = 0; i < count; ++i) tokens[i] = static_cast<int32_t>(i);
        some.resize(count + kLogitBlock, kNaN);
        some_weights.resize(count + kLogitBlock, kNaN);
        Candidates candidates{count, tokens.data(), some.data(), some_weights.data()};
        EXPECT_EQ(LastToSum(enough, candidates), LastByDefinition(enough, logits, weights))
            << count << " tokens, seed " << seed << ", " << enough << " of " << total;
      }
    }
  }
}

// In float32, 1 plus a weight below 2^-24 is 1.
TEST_P(LogitsTest, LastToSumSumsInFloat64) {
  constexpr int64_t kNear = 64, kCount = 2 * kNear;
  std::vector<int32_t> tokens(kCount + kLogitBlock);
  std::vector<float> logits(kCount + kLogitBlock, kNaN), weights(kCount + kLogitBlock, kNaN);
  for (int64_t i = 0; i < kCount; ++i) {
    tokens[i] = static_cast<int32_t>(i);
    // First close together, then far away.
    logits[i] = (i < kNear ? 1.0f : -100.0f) - static_cast<float>(i) * 0x1p-10f;
    weights[i] = i == 0 ? 1.0f : 0x1p-26f;
  }
  Candidates candidates{kCount, tokens.data(), logits.data(), weights.data()};
  EXPECT_EQ(LastToSum(1 + (kNear - 1) * 0x1p-26, candidates), kNear - 1);
}

INSTANTIATE_TEST_SUITE_P(Targets, LogitsTest, testing::ValuesIn(InstructionSets()),
                         InstructionSetName);

}  // namespace
}  // namespace triptych::kernels::logits_test
