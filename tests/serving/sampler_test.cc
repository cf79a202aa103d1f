#include "engine/serving/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "tests/support/likely_tokens.h"

namespace triptych::serving::sampler_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<int32_t> Draw(Sampler& sampler, const std::vector<float>& logits, int count) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(sampler.Sample(logits));
  return tokens;
}

std::vector<int32_t> Draw(const SamplingParams& params, const std::vector<float>& logits, int count,
                          uint64_t seed = 1) {
  Sampler sampler(params, seed, {});
  return Draw(sampler, logits, count);
}

// The logits of given probabilities.
std::vector<float> Logits(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

// The tokens that can be sampled: with enough draws to see those of probability 1/50.
std::vector<int32_t> Support(const SamplingParams& params, const std::vector<float>& logits) {
  std::vector<int32_t> tokens = Draw(params, logits, 2000);
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  return tokens;
}

// --- Greedy ---------------------------------------------------------------------------------

// The plain scan, and the general path, selected by a bias without effect.
class GreedyTest : public testing::TestWithParam<bool> {
 protected:
  int32_t Sample(const std::vector<float>& logits) {
    SamplingParams params{.temperature = 0};
    if (GetParam()) params.logit_bias[0] = 0;
    return Sampler(params, 1, {}).Sample(logits);
  }
};
INSTANTIATE_TEST_SUITE_P(PlainAndBiased, GreedyTest, testing::Bool());

TEST_P(GreedyTest, TakesTheMostLikely) { EXPECT_EQ(Sample({-3, 2, 1.5f, -1}), 1); }

TEST_P(GreedyTest, TakesTheLowestIdAmongEquals) { EXPECT_EQ(Sample({-1, 2, 0, 2, 2}), 1); }

TEST_P(GreedyTest, NeverTakesWhatHasNoProbability) {
  EXPECT_EQ(Sample({kNaN, -kInf, -5, kNaN}), 2);
  EXPECT_EQ(Sample({kNaN, -kInf}), -1);
  EXPECT_EQ(Sample({}), -1);
}

TEST_P(GreedyTest, TakesInfinityAsTheLargestNumber) {
  EXPECT_EQ(Sample({1, kInf, 3}), 1);
  EXPECT_EQ(Sample({1, kInf, kInf}), 1);
}

// --- Draws ----------------------------------------------------------------------------------

TEST(SamplerTest, DrawsFollowTheStandardGenerator) {
  // Sixteen equal tokens: the draw equals the generator's upper four bits, on every platform.
  std::mt19937_64 generator(42);
  Sampler sampler({}, 42, {});
  const std::vector<float> logits(16, 0.5f);
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(sampler.Sample(logits), static_cast<int32_t>(generator() >> 60));
  }
}

TEST(SamplerTest, TheSeedDecides) {
  const std::vector<float> logits = Logits({0.1, 0.2, 0.3, 0.4});
  EXPECT_EQ(Draw({}, logits, 50, 7), Draw({}, logits, 50, 7));
  EXPECT_NE(Draw({}, logits, 50, 7), Draw({}, logits, 50, 8));
}

TEST(SamplerTest, NeverDrawsWhatHasNoProbability) {
  EXPECT_THAT(Support({}, {kNaN, 0, -kInf, 0}), ElementsAre(1, 3));
  EXPECT_THAT(Support({}, {-kInf, -kInf}), ElementsAre(-1));
  EXPECT_THAT(Support({}, {kNaN}), ElementsAre(-1));
  EXPECT_THAT(Support({}, {}), ElementsAre(-1));
  // Underflows to a probability of zero.
  EXPECT_THAT(Support({}, {-1e30f, 0}), ElementsAre(1));
  EXPECT_THAT(Support({.temperature = 1e-30f}, {0, 1, 2}), ElementsAre(2));
}

TEST(SamplerTest, InfinitiesShareTheProbability) {
  EXPECT_THAT(Support({}, {kInf, 5, kInf}), ElementsAre(0, 2));
  EXPECT_THAT(Support({.temperature = 1e-45f}, {kInf, 5, kInf}), ElementsAre(0, 2));
}

// The filtered distribution by its definition, on sorted tokens.
std::vector<double> Distribution(const SamplingParams& params, const std::vector<float>& logits) {
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  if (params.top_k > 0) order.resize(std::min<size_t>(order.size(), params.top_k));
  std::vector<double> p(logits.size());
  const auto softmax = [&] {
    std::fill(p.begin(), p.end(), 0);
    for (const size_t token : order) p[token] = std::exp(logits[token] / params.temperature);
    const double sum = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& value : p) value /= sum;
  };
  softmax();
  double reached = 0;
  size_t kept = 0;
  while (kept < order.size() && (kept == 0 || reached < params.top_p)) reached += p[order[kept++]];
  order.resize(kept);
  softmax();
  while (p[order.back()] < params.min_p * p[order.front()]) order.pop_back();
  softmax();
  return p;
}

TEST(SamplerTest, DrawsAsOftenAsTheFilteredDistributionSays) {
  const std::vector<float> logits = {0.3f, -1.2f, 1.7f, 0.9f, 1.7f, -3, 0.31f, 2.2f, -0.4f, 1.1f};
  constexpr int kDraws = 20000;
  uint64_t seed = 0;
  for (const float temperature : {0.5f, 1.0f, 2.0f}) {
    for (const int32_t top_k : {0, 1, 3, 7, 99}) {
      for (const float top_p : {0.3f, 0.85f, 1.0f}) {
        for (const float min_p : {0.0f, 0.2f, 1.0f}) {
          const SamplingParams params{
              .temperature = temperature, .top_k = top_k, .top_p = top_p, .min_p = min_p};
          const std::vector<double> expected = Distribution(params, logits);
          std::vector<int> counts(logits.size());
          for (const int32_t token : Draw(params, logits, kDraws, ++seed)) ++counts.at(token);
          for (size_t i = 0; i < logits.size(); ++i) {
            // Five standard deviations: 1,350 counts with fixed seeds, each off by more with a
            // probability below 10^-6.
            const double deviation = std::sqrt(kDraws * expected[i] * (1 - expected[i]));
            ASSERT_NEAR(counts[i], kDraws * expected[i], 5 * deviation)
                << "token " << i << " temperature " << temperature << " top_k " << top_k
                << " top_p " << top_p << " min_p " << min_p;
          }
        }
      }
    }
  }
}

TEST(SamplerTest, TopKKeepsTheLowerIdAmongEquals) {
  EXPECT_THAT(Support({.top_k = 3}, {1, 2, 1, 2, 1}), ElementsAre(0, 1, 3));
}

TEST(SamplerTest, TopPStopsWhereItIsReached) {
  const std::vector<float> logits = Logits({0.25, 0.5, 0.25});
  EXPECT_THAT(Support({.top_p = 1e-6f}, logits), ElementsAre(1));
  EXPECT_THAT(Support({.top_p = 0.49f}, logits), ElementsAre(1));
  EXPECT_THAT(Support({.top_p = 0.51f}, logits), ElementsAre(0, 1));
  EXPECT_THAT(Support({.top_p = 0.74f}, logits), ElementsAre(0, 1));
  EXPECT_THAT(Support({.top_p = 0.76f}, logits), ElementsAre(0, 1, 2));
  // Exactly reached: four equal tokens have probabilities without rounding.
  EXPECT_THAT(Support({.top_p = 0.5f}, {3, 3, 3, 3}), ElementsAre(0, 1));
}

TEST(SamplerTest, MinPIsRelativeToTheMostLikely) {
  EXPECT_THAT(Support({.min_p = 0.49f}, Logits({0.4, 0.2, 0.4 * 0.45})), ElementsAre(0, 1));
  EXPECT_THAT(Support({.min_p = 1}, {2, 2, 1}), ElementsAre(0, 1));
}

TEST(SamplerTest, FiltersApplyInOrder) {
  // top_k keeps two tokens; the first of them already has 4/7 >= 0.5.
  const std::vector<float> logits = Logits({0.4, 0.3, 0.2, 0.1});
  EXPECT_THAT(Support({.top_k = 2, .top_p = 0.5f}, logits), ElementsAre(0));
  EXPECT_THAT(Support({.top_p = 0.5f}, logits), ElementsAre(0, 1));
  // At temperature 1/2 the probabilities are 16/30, 9/30, 4/30, 1/30.
  EXPECT_THAT(Support({.temperature = 0.5f, .top_p = 0.5f}, logits), ElementsAre(0));
}

// --- Rows of every size and shape, against sorted float64 --------------------------------------

// Relative error of a float32 weight, at the temperatures below.
constexpr double kRounding = 1e-5;

double AsItCounts(float logit) {
  return std::isnan(logit) ? -kInf : std::min(logit, std::numeric_limits<float>::max());
}

enum class Shape {
  kNormal,
  kNearlyEqual,
  kEqual,
  kTies,
  kTwoValues,
  kZeros,  // of both signs
  kHoles,  // most are impossible
  kPeaks,
  kHuge,
  kInfinite,
};
constexpr int kShapes = 10;
constexpr int64_t kCounts[] = {1, 2, 3, 17, 255, 256, 257, 1000, 5000, 150'000};

std::vector<float> LogitsOf(Shape shape, int64_t count) {
  std::mt19937_64 generator(count);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(count);
  for (float& logit : logits) {
    logit = normal(generator);
    if (shape == Shape::kNearlyEqual) logit = 5 + 1e-3f * logit;
    if (shape == Shape::kEqual) logit = 1.5f;
    if (shape == Shape::kTies) logit = std::round(logit);
    if (shape == Shape::kTwoValues) logit = logit > 0 ? 1.0f : 0.9f;
    if (shape == Shape::kZeros) logit = logit > 1 ? 0.0f : logit < -1 ? -0.0f : -1.0f;
    if (shape == Shape::kHoles && generator() % 3 > 0) logit = logit > 0 ? kNaN : -kInf;
  }
  const auto some = [&]() -> float& { return logits[generator() % count]; };
  if (shape == Shape::kHoles) some() = 4;  // one is possible
  if (shape == Shape::kHuge) some() = 1e30f;
  if (shape == Shape::kInfinite) some() = some() = kInf;
  for (int i = 0; i < 30 && shape == Shape::kPeaks; ++i) {
    some() = 16 - 0.2f * static_cast<float>(i);
  }
  return logits;
}

// The possible tokens, most likely first.
std::vector<int32_t> Sorted(const std::vector<float>& logits) {
  std::vector<int32_t> order;
  for (int32_t i = 0; i < std::ssize(logits); ++i) {
    if (AsItCounts(logits[i]) > -kInf) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return AsItCounts(logits[a]) > AsItCounts(logits[b]);
  });
  return order;
}

struct WeighedToken {
  int32_t token;
  double weight;
};

// The sorted tokens that the filters keep, if sums are off by a factor.
std::vector<WeighedToken> Filtered(const std::vector<int32_t>& sorted, const SamplingParams& params,
                                   const std::vector<float>& logits, double factor) {
  std::vector<WeighedToken> kept;
  double total = 0;
  for (const int32_t token : sorted) {
    if (params.top_k > 0 && std::ssize(kept) == params.top_k) break;
    const double below = AsItCounts(logits[token]) - AsItCounts(logits[sorted[0]]);
    kept.push_back({token, std::exp(below / params.temperature)});
    total += kept.back().weight;
  }
  if (params.top_p < 1) {
    double reached = 0;
    size_t count = 0;
    do reached += kept[count++].weight;
    while (count < kept.size() && reached < params.top_p * factor * total);
    kept.resize(count);
  }
  while (kept.back().weight < params.min_p && kept.back().weight < params.min_p * factor) {
    kept.pop_back();
  }
  std::sort(kept.begin(), kept.end(),
            [](const WeighedToken& a, const WeighedToken& b) { return a.token < b.token; });
  return kept;
}

// Every draw is the token whose interval of the cumulative weights, in order of ids, contains the
// generator's number.
TEST(SamplerTest, DrawsAreThoseOfSortedTokens) {
  const std::vector<SamplingParams> all = {
      {.temperature = 0},
      {.temperature = 1},
      {.temperature = 0.3f},
      {.top_k = 1},
      {.temperature = 0.8f, .top_k = 40},
      {.top_k = 700},
      {.temperature = 0.8f, .top_p = 0.9f},
      {.temperature = 3, .top_p = 0.999f},
      {.top_p = 1e-6f},
      {.min_p = 0.05f},
      {.temperature = 5, .min_p = 1},
      {.temperature = 0.8f, .top_k = 200, .top_p = 0.9f, .min_p = 0.01f},
      {.top_k = 3000, .top_p = 0.5f}};
  int cases = 0, compared = 0;
  for (const int64_t count : kCounts) {
    for (int shape = 0; shape < kShapes; ++shape) {
      const std::vector<float> logits = LogitsOf(static_cast<Shape>(shape), count);
      const std::vector<int32_t> sorted = Sorted(logits);
      // The largest rows take a part of the parameters, to save time.
      const int step = count > 5000 ? 4 : 1;
      for (int i = step > 1 ? shape % step : 0; i < std::ssize(all); i += step) {
        SCOPED_TRACE("logits " + std::to_string(count) + ", shape " + std::to_string(shape) +
                     ", params " + std::to_string(i));
        const SamplingParams& params = all[i];
        Sampler sampler(params, /*seed=*/count, {});
        if (params.temperature == 0) {
          EXPECT_EQ(sampler.Sample(logits), sorted[0]);
          continue;
        }
        const std::vector<WeighedToken> kept = Filtered(sorted, params, logits, 1 + kRounding);
        ++cases;
        // Skips cases in which rounding decides which tokens are kept.
        if (kept.size() != Filtered(sorted, params, logits, 1 - kRounding).size()) continue;
        ++compared;
        double total = 0;
        for (const WeighedToken& one : kept) total += one.weight;
        std::mt19937_64 generator(count);
        for (int draw = 0; draw < 5; ++draw) {
          const double point = static_cast<double>(generator() >> 11) * 0x1p-53 * total;
          const int32_t token = sampler.Sample(logits);
          double before = 0;
          auto at = kept.begin();
          for (; at != kept.end() && at->token != token; ++at) before += at->weight;
          ASSERT_NE(at, kept.end()) << "token " << token << " is not kept";
          EXPECT_GE(point, before - kRounding * total);
          EXPECT_LE(point, before + at->weight + kRounding * total);
        }
      }
    }
  }
  EXPECT_GT(compared, cases * 9 / 10);
}

// --- Bias and penalties, by hand --------------------------------------------------------------

TEST(SamplerTest, BiasIsAdded) {
  SamplingParams params{.temperature = 0};
  params.logit_bias = {{0, -1.5f}, {2, 0.75f}};
  EXPECT_EQ(Sampler(params, 1, {}).Sample(std::vector<float>{2, 1, 0.5f}), 2);
  params.logit_bias = {{0, -1.5f}, {2, 0.25f}};
  EXPECT_EQ(Sampler(params, 1, {}).Sample(std::vector<float>{2, 1, 0.5f}), 1);
  params.logit_bias = {{1, 1000}};
  EXPECT_EQ(Sampler(params, 1, {}).Sample(std::vector<float>{0, -kInf}), 0);
}

TEST(SamplerTest, RepetitionPenaltyDividesPositiveAndMultipliesNegativeLogits) {
  const auto choose = [](float penalty, std::vector<float> logits) {
    const std::vector<int32_t> prompt = {0, 0};
    return Sampler({.temperature = 0, .repetition_penalty = penalty}, 1, prompt).Sample(logits);
  };
  EXPECT_EQ(choose(1.9f, {2, 1.01f}), 0);  // 1.05, however often the prompt contains it
  EXPECT_EQ(choose(2.0f, {2, 1.01f}), 1);  // 1
  EXPECT_EQ(choose(1.4f, {-1, -1.5f}), 0);
  EXPECT_EQ(choose(1.6f, {-1, -1.5f}), 1);
  EXPECT_EQ(choose(0.5f, {1, 1.9f}), 0);  // 2: a penalty below 1 favours
}

TEST(SamplerTest, RepetitionPenaltyCountsTheOutput) {
  Sampler sampler({.temperature = 0, .repetition_penalty = 2}, 1, {});
  // 2, 1.5, 0.8; then 1, 1.5, 0.8; then 1, 0.75, 0.8, which stays.
  EXPECT_THAT(Draw(sampler, {2, 1.5f, 0.8f}, 4), ElementsAre(0, 1, 0, 0));
}

TEST(SamplerTest, PresencePenaltyAppliesOnceAndToTheOutputOnly) {
  const std::vector<int32_t> prompt = {0};
  Sampler sampler({.temperature = 0, .presence_penalty = 0.4f}, 1, prompt);
  // 1, 0.7; then 0.6, 0.7; then 0.6, 0.3, which stays.
  EXPECT_THAT(Draw(sampler, {1, 0.7f}, 5), ElementsAre(0, 1, 0, 0, 0));
}

TEST(SamplerTest, FrequencyPenaltyAppliesEachTimeAndToTheOutputOnly) {
  const std::vector<int32_t> prompt = {0};
  Sampler sampler({.temperature = 0, .frequency_penalty = 0.2f}, 1, prompt);
  // 1, 0.8, 0.6, 0.4 against 0.55; then 0.4 against 0.35; then 0.2 against 0.35.
  EXPECT_THAT(Draw(sampler, {1, 0.55f}, 6), ElementsAre(0, 0, 0, 1, 0, 1));
}

TEST(SamplerTest, PenaltiesSeeTheLastTokensOnly) {
  const auto draw = [](int32_t window, std::vector<int32_t> prompt, int count) {
    Sampler sampler({.temperature = 0, .repetition_penalty = 4, .penalty_window = window}, 1,
                    prompt);
    return Draw(sampler, {4, 3, 2}, count);
  };
  EXPECT_THAT(draw(0, {0, 0, 1}, 2), ElementsAre(0, 0));
  EXPECT_THAT(draw(1, {0, 0, 1}, 4), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(draw(2, {0, 0, 1}, 4), ElementsAre(2, 0, 1, 2));
  EXPECT_THAT(draw(2, {0, 0}, 3), ElementsAre(1, 2, 0)) << "of two, one is left after a draw";
  EXPECT_THAT(draw(1000, {0, 0, 1}, 4), ElementsAre(2, 0, 0, 0));
  EXPECT_THAT(draw(-1, {0, 0, 1}, 4), ElementsAre(2, 0, 0, 0));
}

TEST(SamplerTest, PenaltiesCountTheOutputInTheirWindow) {
  Sampler sampler({.temperature = 0, .frequency_penalty = 1, .penalty_window = 3}, 1, {});
  // Counts of 0 in the last three tokens: 0, 1, 2 (1 is as likely: the lower id), 3, then 2.
  EXPECT_THAT(Draw(sampler, {4, 2}, 6), ElementsAre(0, 0, 0, 1, 0, 0));
}

TEST(SamplerTest, BiasComesBeforePenaltiesAndRepetitionFirstOfThese) {
  const std::vector<int32_t> prompt = {0};
  SamplingParams params{.temperature = 0, .repetition_penalty = 2};
  params.logit_bias[0] = 2;
  // (-1 + 2) / 2 = 0.5; the other way round it would be 0.
  EXPECT_EQ(Sampler(params, 1, prompt).Sample(std::vector<float>{-1, 0.25f}), 0);

  Sampler both({.temperature = 0, .repetition_penalty = 2, .presence_penalty = 1}, 1, {});
  // 4, then 4 / 2 - 1 = 1; the other way round it would be 1.5.
  EXPECT_THAT(Draw(both, {4, 1.25f}, 2), ElementsAre(0, 1));
}

TEST(SamplerTest, PenaltiesComeBeforeTemperature) {
  const std::vector<int32_t> prompt = {0};
  // 2 / 2 = 1 at temperature 1/100 is 100, against 101.
  const SamplingParams params{.temperature = 0.01f, .top_k = 1, .repetition_penalty = 2};
  EXPECT_EQ(Sampler(params, 1, prompt).Sample(std::vector<float>{2, 1.01f}), 1);
}

TEST(SamplerTest, TokensWithoutALogitHaveNoEffect) {
  const std::vector<int32_t> prompt = {-1, 2, 1 << 30};
  SamplingParams params{.temperature = 0, .repetition_penalty = 2, .frequency_penalty = 1};
  params.logit_bias = {{-5, 3}, {2, 100}, {1 << 30, 3}};
  EXPECT_EQ(Sampler(params, 1, prompt).Sample(std::vector<float>{1, 2}), 1);
}

// --- Log-probabilities ------------------------------------------------------------------------

TEST(LogprobsTest, LogSumExpIsStable) {
  EXPECT_NEAR(LogSumExp(std::vector<float>{0, 0, 0, 0}), std::log(4.0), 1e-15);
  EXPECT_NEAR(LogSumExp(std::vector<float>{1e4f, 1e4f}), 1e4 + std::log(2.0), 1e-11);
  EXPECT_NEAR(LogSumExp(std::vector<float>{-1e4f, -1e4f, kNaN}), -1e4 + std::log(2.0), 1e-11);
  EXPECT_EQ(LogSumExp(std::vector<float>{-kInf, kNaN}), -kInf);
  EXPECT_EQ(LogSumExp({}), -kInf);
}

TEST(LogprobsTest, ChosenAndTop) {
  const TokenLogprobs result = Logprobs(Logits({0.1, 0.2, 0.5, 0.2}), 0, 3);
  EXPECT_EQ(result.chosen.token, 0);
  EXPECT_NEAR(result.chosen.logprob, std::log(0.1), 1e-6);
  ASSERT_EQ(result.top.size(), 3u);
  EXPECT_EQ(result.top[0].token, 2);
  EXPECT_NEAR(result.top[0].logprob, std::log(0.5), 1e-6);
  EXPECT_EQ(result.top[1].token, 1);  // the lower id of two equals
  EXPECT_EQ(result.top[2].token, 3);
  EXPECT_NEAR(result.top[2].logprob, std::log(0.2), 1e-6);
}

TEST(LogprobsTest, TopMayBeNoneOrMoreThanThereAre) {
  const std::vector<float> logits = {1, 2};
  EXPECT_THAT(Logprobs(logits, 0, 0).top, IsEmpty());
  EXPECT_EQ(Logprobs(logits, 0, 20).top.size(), 2u);
}

TEST(LogprobsTest, ImpossibleTokensHaveNoNaN) {
  const std::vector<float> logits = {kNaN, 0, -kInf};
  const TokenLogprobs result = Logprobs(logits, 0, 3);
  EXPECT_EQ(result.chosen.logprob, -kInf);
  EXPECT_EQ(result.top[0].token, 1);
  EXPECT_EQ(result.top[0].logprob, 0);
  EXPECT_EQ(result.top[1].logprob, -kInf);
  const std::vector<float> none = {kNaN, -kInf};
  EXPECT_EQ(Logprobs(none, 1, 0).chosen.logprob, -kInf);
  EXPECT_EQ(Logprobs(std::vector<float>{kInf, 0}, 0, 0).chosen.logprob, 0);
}

TEST(LogprobsTest, AreThoseOfSortedTokens) {
  for (const int64_t count : kCounts) {
    for (int shape = 0; shape < kShapes; ++shape) {
      SCOPED_TRACE("logits " + std::to_string(count) + ", shape " + std::to_string(shape));
      const std::vector<float> logits = LogitsOf(static_cast<Shape>(shape), count);
      std::vector<int32_t> sorted = Sorted(logits);
      const double best = AsItCounts(logits[sorted[0]]);
      double sum = 0;
      for (const int32_t token : sorted) sum += std::exp(AsItCounts(logits[token]) - best);
      for (int32_t i = 0; i < count; ++i) {  // impossible tokens come last
        if (AsItCounts(logits[i]) == -kInf) sorted.push_back(i);
      }
      const double normalizer = best + std::log(sum);
      EXPECT_NEAR(LogSumExp(logits), normalizer, kRounding);
      for (const int32_t top : {0, 1, 20, 700}) {
        const auto chosen = static_cast<int32_t>(count / 2);
        const TokenLogprobs result = Logprobs(logits, chosen, top);
        EXPECT_EQ(result.chosen.token, chosen);
        ASSERT_EQ(std::ssize(result.top), std::min<int64_t>(top, count));
        for (size_t i = 0; i < result.top.size(); ++i) {
          const double expected = AsItCounts(logits[sorted[i]]) - normalizer;
          ASSERT_EQ(result.top[i].token, sorted[i]) << "place " << i;
          if (expected == -kInf) {
            EXPECT_EQ(result.top[i].logprob, -kInf);
          } else {
            EXPECT_NEAR(result.top[i].logprob, expected, kRounding * (1 + std::abs(expected)));
          }
          if (sorted[i] == chosen) {
            EXPECT_EQ(result.chosen.logprob, result.top[i].logprob);
          }
        }
      }
    }
  }
}

// --- Likely tokens --------------------------------------------------------------------------

// A row with equal logits, and with logits that are not finite.
std::vector<float> RowWithEquals(std::mt19937_64& generator, int64_t size) {
  std::vector<float> logits(size);
  for (float& logit : logits) {
    const auto draw = static_cast<int>(generator() % 1000);
    logit = draw == 0 ? kNaN : draw == 1 ? -kInf : static_cast<float>(draw % 97) / 9;
  }
  return logits;
}

TEST(LikelyTokensTest, GiveTheTokensOfWholeRows) {
  std::mt19937_64 generator(3);
  const std::vector<SamplingParams> all = {{.temperature = 0},
                                           {.temperature = 1, .top_k = 1},
                                           {.temperature = 2, .top_k = 12},
                                           {.temperature = 5, .top_k = 12, .top_p = 0.7f},
                                           {.temperature = 3, .top_k = 12, .min_p = 0.9f}};
  for (int i = 0; i < 40; ++i) {
    const std::vector<float> logits = RowWithEquals(generator, 20 + i * 37);
    const LikelyRow likely(logits, 15);
    const std::vector<int32_t> forbidden = {likely.tokens[3], 1, likely.tokens[11]};
    for (const SamplingParams& params : all) {
      Sampler of_row(params, i, {}), of_likely(params, i, {});
      ASSERT_TRUE(of_likely.UsesLikely(15, 3, 0));
      for (int draw = 0; draw < 20; ++draw) {
        ASSERT_EQ(of_row.Sample(logits), *of_likely.Sample(likely.View()));
        ASSERT_EQ(of_row.Sample(logits, forbidden), *of_likely.Sample(likely.View(), forbidden));
      }
    }
    const int32_t chosen = likely.tokens[7];
    const TokenLogprobs expected = Logprobs(logits, chosen, 15);
    const TokenLogprobs found = Logprobs(likely.View(), chosen, 15);
    EXPECT_NEAR(found.chosen.logprob, expected.chosen.logprob, 1e-5);
    ASSERT_EQ(found.top.size(), expected.top.size());
    for (size_t t = 0; t < found.top.size(); ++t) {
      EXPECT_EQ(found.top[t].token, expected.top[t].token);
      EXPECT_NEAR(found.top[t].logprob, expected.top[t].logprob, 1e-5);
    }
  }
}

// Frequency of each token, sampled from the likely tokens, and from the whole row if needed.
std::vector<double> DrawnShares(const SamplingParams& params, const std::vector<float>& logits,
                                int64_t likely_tokens, const std::vector<int32_t>& forbidden,
                                int draws, int* whole_rows) {
  Sampler sampler(params, 5, {});
  const LikelyRow likely(logits, likely_tokens, sampler.likely_scale());
  std::vector<double> shares(logits.size());
  for (int i = 0; i < draws; ++i) {
    std::optional<int32_t> token = sampler.Sample(likely.View(), forbidden);
    if (!token) {
      token = sampler.SampleRest(logits, likely.View(), forbidden);
      ++*whole_rows;
    }
    shares.at(*token) += 1.0 / draws;
  }
  return shares;
}

// The filtered distribution, in float64.
std::vector<double> Distribution(const SamplingParams& params, const std::vector<float>& logits,
                                 const std::vector<int32_t>& forbidden) {
  std::vector<double> weights;
  for (const float logit : logits) weights.push_back(std::exp(double{logit} / params.temperature));
  for (const int32_t token : forbidden) weights[token] = 0;
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return weights[a] > weights[b]; });
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  const double least = params.min_p * weights[order[0]];
  double sum = 0;
  std::vector<double> kept(logits.size());
  for (const int32_t token : order) {
    if (sum >= params.top_p * all || weights[token] < least) break;
    kept[token] = weights[token];
    sum += weights[token];
  }
  for (double& weight : kept) weight /= sum;
  return kept;
}

TEST(LikelyTokensTest, DrawsOfAllTokensFollowTheDistribution) {
  std::vector<float> logits(60);
  std::mt19937_64 generator(11);
  for (float& logit : logits) logit = static_cast<float>(generator() % 1000) / 250;
  constexpr int kDraws = 40000;
  const std::vector<SamplingParams> all = {{.temperature = 1},
                                           {.temperature = 0.3f},
                                           {.temperature = 3},
                                           {.temperature = 1, .top_p = 0.5f},
                                           {.temperature = 2, .top_p = 0.95f},
                                           {.temperature = 1, .min_p = 0.3f},
                                           {.temperature = 1, .top_p = 0.6f, .min_p = 0.2f}};
  const int32_t likeliest = LikelyRow(logits, 1).tokens[0];
  for (const SamplingParams& params : all) {
    for (const int64_t likely_tokens : {8, 30, 60}) {
      for (const std::vector<int32_t>& forbidden :
           {std::vector<int32_t>{}, {likeliest}, {likeliest, 0, 1, 2, 3}}) {
        int whole_rows = 0;
        const std::vector<double> shares =
            DrawnShares(params, logits, likely_tokens, forbidden, kDraws, &whole_rows);
        const std::vector<double> expected = Distribution(params, logits, forbidden);
        for (size_t i = 0; i < logits.size(); ++i) {
          // Five standard deviations.
          const double tolerance = 5 * std::sqrt(expected[i] * (1 - expected[i]) / kDraws);
          ASSERT_NEAR(shares[i], expected[i], tolerance)
              << "token " << i << ", temperature " << params.temperature << ", " << likely_tokens
              << " likely tokens, " << forbidden.size() << " forbidden";
        }
      }
    }
  }
}

TEST(LikelyTokensTest, WholeRowsAreNeededOnlyBeyondTheLikelyTokens) {
  std::vector<float> logits(1000, -9);
  for (int i = 0; i < 20; ++i) logits[i * 3] = static_cast<float>(i) / 2;
  int whole_rows = 0;
  DrawnShares({.temperature = 1, .top_p = 0.9f}, logits, 128, {}, 1000, &whole_rows);
  DrawnShares({.temperature = 1, .min_p = 0.05f}, logits, 128, {}, 1000, &whole_rows);
  EXPECT_EQ(whole_rows, 0);
  DrawnShares({.temperature = 1}, logits, 128, {}, 1000, &whole_rows);
  EXPECT_LT(whole_rows, 10);  // tokens behind the likely ones have a probability below 0.001
  whole_rows = 0;
  DrawnShares({.temperature = 30, .top_p = 0.9f}, logits, 128, {}, 1000, &whole_rows);
  EXPECT_EQ(whole_rows, 1000);
}

TEST(LikelyTokensTest, ADominantForbiddenTokenLeavesTheDistributionOfTheOthers) {
  std::vector<float> logits = {1, 2, 0.5f, 30, 1.5f, -3};
  for (const float temperature : {1.0f, 0.01f}) {
    for (const int64_t likely_tokens : {3, 6}) {
      int whole_rows = 0;
      const std::vector<double> shares =
          DrawnShares({.temperature = temperature}, logits, likely_tokens, {3}, 4000, &whole_rows);
      const std::vector<double> expected =
          Distribution({.temperature = temperature}, {1, 2, 0.5f, -300, 1.5f, -3}, {});
      EXPECT_EQ(shares[3], 0);
      for (size_t i = 0; i < logits.size(); ++i) EXPECT_NEAR(shares[i], expected[i], 0.04) << i;
    }
  }
}

TEST(LikelyTokensTest, RoundingNeverDrawsWhatIsForbiddenOrImpossible) {
  const std::vector<float> logits = {3, -kInf, 2, -kInf};
  LikelyRow row(logits, 2);
  row.weight_sum *= 2;  // a sum that is far too large
  Sampler sampler({.temperature = 1}, 3, {});
  for (int i = 0; i < 200; ++i) {
    std::optional<int32_t> token = sampler.Sample(row.View(), std::vector<int32_t>{2});
    if (!token) token = sampler.SampleRest(logits, row.View(), std::vector<int32_t>{2});
    ASSERT_EQ(*token, 0);
  }
}

TEST(LikelyTokensTest, SufficeOnlyWhereNothingElseCanBeChosen) {
  const auto suffice = [](const SamplingParams& params, int64_t forbidden, int64_t top) {
    return Sampler(params, 1, {}).UsesLikely(16, forbidden, top);
  };
  EXPECT_TRUE(suffice({.temperature = 0}, 15, 16));
  EXPECT_FALSE(suffice({.temperature = 0}, 16, 0));
  EXPECT_FALSE(suffice({.temperature = 0}, 0, 17));
  EXPECT_TRUE(suffice({.temperature = 1, .top_k = 14}, 2, 0));
  EXPECT_FALSE(suffice({.temperature = 1, .top_k = 15}, 2, 0));
  EXPECT_TRUE(suffice({.temperature = 1}, 0, 0));
  EXPECT_TRUE(suffice({.temperature = 1, .top_p = 0.1f}, 0, 0));
  EXPECT_FALSE(suffice({.temperature = 0, .repetition_penalty = 1.1f}, 0, 0));
  EXPECT_FALSE(suffice({.temperature = 0, .presence_penalty = 1}, 0, 0));
  EXPECT_FALSE(suffice({.temperature = 0, .logit_bias = {{3, 1.0f}}}, 0, 0));
  EXPECT_FALSE(suffice({.temperature = 0, .allowed = {3}}, 0, 0));
}

TEST(LikelyTokensTest, NothingIsChosenWhereNothingIsPossible) {
  const LikelyRow likely(std::vector<float>(9, -kInf), 4);
  EXPECT_EQ(Sampler({.temperature = 0}, 1, {}).Sample(likely.View()), -1);
}

}  // namespace
}  // namespace triptych::serving::sampler_test
