#include "engine/serving/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <numeric>
#include <utility>

#include "engine/base/ceil_div.h"
#include "engine/kernels/logits.h"
#include "engine/kernels/workspace.h"

namespace triptych::serving {
namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

float Usable(float logit) {
  if (std::isnan(logit)) return kImpossible;
  return std::min(logit, kLargest);
}

// The usable float nearest to a changed logit.
float ToLogit(double changed) {
  if (changed == kImpossible) return kImpossible;
  return static_cast<float>(std::clamp<double>(changed, -kLargest, kLargest));
}

constexpr int64_t kMaskBits = 64;

// Takes the probability of the tokens that cannot be chosen. `changed` has `count` logits.
void Mask(const ChoosableTokens& choosable, kernels::Workspace& workspace, int64_t count,
          float* changed) {
  const kernels::Workspace::Scope scope(workspace);
  const int64_t words = CeilDiv(count, kMaskBits);
  auto* const mask = workspace.Take<uint64_t>(words);
  const int64_t given = std::min<int64_t>(words, std::ssize(choosable.mask));
  std::copy_n(choosable.mask.begin(), given, mask);
  std::fill(mask + given, mask + words, 0);
  for (const int32_t token : choosable.also) {
    if (token >= 0 && token < count) {
      mask[token / kMaskBits] |= uint64_t{1} << (token % kMaskBits);
    }
  }
  for (int64_t word = 0; word < words; ++word) {
    float* const logits = changed + word * kMaskBits;
    const int64_t tokens = std::min(kMaskBits, count - word * kMaskBits);
    if (mask[word] == 0) {
      std::fill_n(logits, tokens, kImpossible);
      continue;
    }
    for (uint64_t left = ~mask[word]; left != 0; left &= left - 1) {
      const int token = std::countr_zero(left);
      if (token >= tokens) break;
      logits[token] = kImpossible;
    }
  }
}

// The calling thread's workspace.
kernels::Workspace& OwnWorkspace() {
  thread_local kernels::Workspace workspace;
  return workspace;
}

kernels::LikeliestTokens Fewer(const kernels::LikeliestTokens& a,
                               const kernels::LikeliestTokens& b) {
  return a.least > b.least || (a.least == b.least && a.last < b.last) ? a : b;
}

// The tokens whose logit is at least `logit`.
kernels::LikeliestTokens NoLessThan(double logit) {
  auto least = static_cast<float>(std::clamp<double>(logit, -kLargest, kLargest));
  if (least < logit) least = std::nextafter(least, kLargest);
  return {.least = least};
}

// A row of logits to choose from. Computes in the workspace. REQUIRES: a scope of it is open.
class Row {
 public:
  Row(std::span<const float> logits, kernels::Workspace& workspace)
      : logits_(logits.data()),
        count_(std::ssize(logits)),
        workspace_(workspace),
        blocks_(CeilDiv(count_, kernels::kLogitBlock)),
        maxima_(workspace.Floats(blocks_)) {
    kernels::LogitMaxima(logits_, count_, maxima_);
    for (int64_t b = 0; b < blocks_; ++b) largest_ = std::max(largest_, maxima_[b]);
  }

  // -inf if no token is possible. The methods below require that one is.
  float largest() const { return largest_; }

  int32_t MostLikely() const {
    int64_t token =
        (std::find(maxima_, maxima_ + blocks_, largest_) - maxima_) * kernels::kLogitBlock;
    while (Usable(logits_[token]) != largest_) ++token;
    return static_cast<int32_t>(token);
  }

  // The tokens and their logits, with room for weights; allocated in the workspace.
  kernels::Candidates Find(const kernels::LikeliestTokens& likeliest) const {
    const int64_t most = count_ + kernels::kLogitBlock;
    kernels::Candidates found{.count = 0,
                              .tokens = workspace_.Take<int32_t>(most),
                              .logits = workspace_.Floats(most),
                              .weights = workspace_.Floats(most)};
    kernels::FindLikeliest(logits_, count_, maxima_, likeliest, found);
    return found;
  }

  // The k likeliest tokens; all if there are fewer.
  kernels::LikeliestTokens TopK(int64_t k) const {
    if (k >= count_) return {};
    const kernels::Workspace::Scope scope(workspace_);
    kernels::LikeliestTokens some;  // at least k, or all
    if (k <= blocks_) {
      // k blocks have a logit of at least the k-th largest maximum. Beyond the first k of these, a
      // token with exactly that logit is not among the k likeliest.
      float* const order = workspace_.Floats(blocks_);
      std::copy_n(maxima_, blocks_, order);
      std::nth_element(order, order + (k - 1), order + blocks_, std::greater<>());
      some.least = std::max(order[k - 1], some.least);
      int64_t block = 0;
      for (int64_t left = k; block < blocks_ && left > 0; ++block) {
        if (maxima_[block] >= some.least) --left;
      }
      some.last = static_cast<int32_t>(std::min(block * kernels::kLogitBlock, count_) - 1);
    }
    kernels::Candidates candidates = Find(some);
    std::fill_n(candidates.weights, candidates.count, 1.0f);
    return UpTo(kernels::LastToSum(static_cast<double>(k), candidates));
  }

  // The fewest likeliest tokens that have the share p of the probability of `kept`.
  kernels::LikeliestTokens TopP(double p, const kernels::LogitWeight& weight,
                                const kernels::LikeliestTokens& kept) const {
    const kernels::Workspace::Scope scope(workspace_);
    double* const sums = workspace_.Take<double>(blocks_);
    const double total = Sum(weight, kept, sums);
    // All tokens of smaller weight together have a probability below 1 - p.
    const double least = 0.99 * (1 - p) * total / static_cast<double>(count_);
    kernels::Candidates candidates =
        Find(Fewer(kept, NoLessThan(weight.largest + std::log2(least) / weight.scale)));
    kernels::WeighLogits(candidates.logits, candidates.count, weight, candidates.weights);
    return UpTo(kernels::LastToSum(p * total, candidates));
  }

  // Draws a token of `kept` by its probability. `uniform`: in [0, 1).
  int32_t Draw(double uniform, const kernels::LogitWeight& weight,
               const kernels::LikeliestTokens& kept) const {
    const kernels::Workspace::Scope scope(workspace_);
    double* const sums = workspace_.Take<double>(blocks_);
    double rest = uniform * Sum(weight, kept, sums);
    for (int64_t block = 0; block < blocks_; ++block) {
      if (rest < sums[block]) return DrawOfBlock(block, rest, weight, kept);
      rest -= sums[block];
    }
    return MostLikely();  // reached only through rounding
  }

  // log(sum(exp(logits)))
  double LogSumExp() const {
    const kernels::Workspace::Scope scope(workspace_);
    double* const sums = workspace_.Take<double>(blocks_);
    return largest_ + std::log(Sum({largest_, std::numbers::log2e_v<float>}, {}, sums));
  }

 private:
  kernels::LikeliestTokens UpTo(int32_t token) const { return {Usable(logits_[token]), token}; }

  // Returns the sum of the weights; writes the sum of each block to `sums`.
  double Sum(const kernels::LogitWeight& weight, const kernels::LikeliestTokens& kept,
             double* sums) const {
    kernels::SumLogitWeights(logits_, count_, maxima_, weight, kept, sums);
    return std::accumulate(sums, sums + blocks_, 0.0);
  }

  int32_t DrawOfBlock(int64_t block, double rest, const kernels::LogitWeight& weight,
                      const kernels::LikeliestTokens& kept) const {
    const int64_t first = block * kernels::kLogitBlock,
                  size = std::min(kernels::kLogitBlock, count_ - first);
    float weights[kernels::kLogitBlock];
    kernels::WeighLogits(logits_ + first, size, weight, weights);
    int32_t drawn = -1;  // so far; the last one if rounding leaves a rest
    for (int64_t i = 0; i < size && rest >= 0; ++i) {
      const auto token = static_cast<int32_t>(first + i);
      if (weights[i] == 0 || !kept.Hold(token, Usable(logits_[token]))) continue;
      drawn = token;
      rest -= weights[i];
    }
    return drawn;
  }

  const float* logits_;
  int64_t count_;
  kernels::Workspace& workspace_;
  int64_t blocks_;
  float* maxima_;  // [blocks]
  float largest_ = kImpossible;
};

// A number in [0, 1) of 53 random bits; the library's distributions differ between platforms.
double Uniform(std::mt19937_64& generator) {
  return static_cast<double>(generator() >> 11) * 0x1p-53;
}

int32_t Choose(const Row& row, const SamplingParams& params, std::mt19937_64& generator) {
  if (row.largest() == kImpossible) return -1;
  if (params.temperature == 0) return row.MostLikely();
  const double scale = std::numbers::log2e / static_cast<double>(params.temperature);
  const kernels::LogitWeight weight{row.largest(),
                                    static_cast<float>(std::min<double>(scale, kLargest))};
  // Each filter sees the distribution that the previous one left.
  kernels::LikeliestTokens kept;
  if (params.top_k > 0) kept = row.TopK(params.top_k);
  if (params.top_p < 1) kept = row.TopP(params.top_p, weight, kept);
  if (params.min_p > 0) {
    kept = Fewer(kept, NoLessThan(weight.largest + std::log2(double{params.min_p}) / weight.scale));
  }
  return row.Draw(Uniform(generator), weight, kept);
}

}  // namespace

double LogSumExp(std::span<const float> logits) {
  const kernels::Workspace::Scope scope(OwnWorkspace());
  const Row row(logits, OwnWorkspace());
  return row.largest() == kImpossible ? kImpossible : row.LogSumExp();
}

TokenLogprobs Logprobs(std::span<const float> logits, int32_t chosen, int32_t top) {
  const kernels::Workspace::Scope scope(OwnWorkspace());
  const Row row(logits, OwnWorkspace());
  const bool possible = row.largest() != kImpossible;
  const double normalizer = possible ? row.LogSumExp() : 0;
  const auto logprob = [&](int32_t token) {
    return TokenLogprob{token, static_cast<float>(Usable(logits[token]) - normalizer)};
  };
  TokenLogprobs result{logprob(chosen), {}};
  if (top <= 0) return result;
  const int64_t count = std::min<int64_t>(top, std::ssize(logits));
  result.top.reserve(count);
  if (possible) {
    const kernels::Candidates likeliest = row.Find(row.TopK(count));
    for (int64_t i = 0; i < likeliest.count; ++i) {
      result.top.push_back(logprob(likeliest.tokens[i]));
    }
    std::sort(result.top.begin(), result.top.end(), [&](const auto& a, const auto& b) {
      const float a_logit = Usable(logits[a.token]), b_logit = Usable(logits[b.token]);
      return a_logit != b_logit ? a_logit > b_logit : a.token < b.token;
    });
  }
  for (int32_t token = 0; std::ssize(result.top) < count; ++token) {
    if (Usable(logits[token]) == kImpossible) result.top.push_back(logprob(token));
  }
  return result;
}

TokenLogprobs Logprobs(const LikelyTokens& likely, int32_t chosen, int32_t top) {
  const auto logprob = [&](int64_t i) {
    return TokenLogprob{likely.tokens[i],
                        static_cast<float>(likely.logits[i] - likely.log_sum_exp)};
  };
  std::vector<int64_t> order(likely.tokens.size());
  std::iota(order.begin(), order.end(), 0);
  const int64_t count = std::clamp<int64_t>(top, 0, std::ssize(order));
  std::partial_sort(order.begin(), order.begin() + count, order.end(), [&](int64_t a, int64_t b) {
    return likely.logits[a] != likely.logits[b] ? likely.logits[a] > likely.logits[b] : a < b;
  });
  const auto found = std::lower_bound(likely.tokens.begin(), likely.tokens.end(), chosen);
  TokenLogprobs result{logprob(found - likely.tokens.begin()), {}};
  for (int64_t i = 0; i < count; ++i) result.top.push_back(logprob(order[i]));
  return result;
}

Sampler::Sampler(SamplingParams params, uint64_t seed, std::span<const int32_t> prompt)
    : params_(std::move(params)),
      generator_(seed),
      penalizes_(params_.penalty_window != 0 &&
                 (params_.repetition_penalty != 1 || params_.presence_penalty != 0 ||
                  params_.frequency_penalty != 0)) {
  if (!penalizes_) return;
  if (params_.penalty_window > 0) {
    prompt = prompt.last(std::min(prompt.size(), static_cast<size_t>(params_.penalty_window)));
  }
  for (const int32_t token : prompt) See({token, /*output=*/false});
}

void Sampler::See(SeenToken seen) {
  const auto count = [this](SeenToken of) -> int32_t& {
    Occurrences& occurrences = occurrences_[of.token];
    return of.output ? occurrences.output : occurrences.prompt;
  };
  ++count(seen);
  if (params_.penalty_window < 0) return;
  if (std::ssize(window_) < params_.penalty_window) return window_.push_back(seen);
  const SeenToken left = std::exchange(window_[oldest_], seen);
  oldest_ = (oldest_ + 1) % window_.size();
  --count(left);
  const Occurrences& rest = occurrences_[left.token];
  if (rest.prompt == 0 && rest.output == 0) occurrences_.erase(left.token);
}

int32_t Sampler::Sample(std::span<const float> logits, std::span<const int32_t> forbidden,
                        const ChoosableTokens* choosable) {
  kernels::Workspace& workspace = OwnWorkspace();
  const kernels::Workspace::Scope scope(workspace);
  if (penalizes_ || !params_.logit_bias.empty() || !params_.allowed.empty() || !forbidden.empty() ||
      choosable != nullptr) {
    float* const changed = workspace.Floats(std::ssize(logits));
    Change(logits, forbidden, choosable, changed);
    logits = {changed, logits.size()};
  }
  const int32_t token = Choose(Row(logits, workspace), params_, generator_);
  if (penalizes_ && token >= 0) See({token, /*output=*/true});
  return token;
}

bool Sampler::UsesLikely(int64_t tokens, int64_t forbidden, int64_t top) const {
  if (penalizes_ || !params_.logit_bias.empty() || !params_.allowed.empty()) return false;
  if (top > tokens) return false;
  if (params_.temperature == 0) return 1 + forbidden <= tokens;
  return params_.top_k + forbidden <= tokens;
}

float Sampler::likely_scale() const {
  return params_.temperature == 0 ? 1.0f : std::min(1 / params_.temperature, kLargest);
}

std::optional<int32_t> Sampler::Sample(const LikelyTokens& likely,
                                       std::span<const int32_t> forbidden) {
  kernels::Workspace& workspace = OwnWorkspace();
  const kernels::Workspace::Scope scope(workspace);
  const auto count = std::ssize(likely.logits);
  float* const logits = workspace.Floats(count);
  std::copy(likely.logits.begin(), likely.logits.end(), logits);
  bool all_known = true;  // all forbidden tokens are among the likely ones
  double forbidden_weight = 0;
  const float largest = *std::max_element(logits, logits + count);
  for (const int32_t token : forbidden) {
    const auto found = std::lower_bound(likely.tokens.begin(), likely.tokens.end(), token);
    if (found == likely.tokens.end() || *found != token) {
      all_known = false;
      continue;
    }
    float& logit = logits[found - likely.tokens.begin()];
    if (logit != kImpossible) forbidden_weight += Weight(logit, largest);
    logit = kImpossible;
  }
  if (params_.temperature > 0 && params_.top_k == 0 && largest != kImpossible) {
    return DrawLikely(likely, logits, all_known, forbidden_weight);
  }
  const int32_t chosen =
      Choose(Row({logits, static_cast<size_t>(count)}, workspace), params_, generator_);
  return chosen < 0 ? chosen : likely.tokens[chosen];
}

double Sampler::Weight(float logit, float largest) const {
  return std::exp((double{logit} - largest) * likely_scale());
}

std::optional<int32_t> Sampler::DrawLikely(const LikelyTokens& likely, const float* logits,
                                           bool all_forbidden_known, double forbidden_weight) {
  kernels::Workspace& workspace = OwnWorkspace();
  const auto count = std::ssize(likely.logits);
  const float largest = *std::max_element(likely.logits.begin(), likely.logits.end());
  int32_t* const order = workspace.Take<int32_t>(count);
  double* const weights = workspace.Take<double>(count);  // in that order
  std::iota(order, order + count, 0);
  std::sort(order, order + count, [&](int32_t a, int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  int64_t possible = 0;
  for (; possible < count && logits[order[possible]] != kImpossible; ++possible) {
    weights[possible] = Weight(logits[order[possible]], largest);
  }
  // The weights of forbidden tokens beyond the likely ones are unknown, and so is the rest if all
  // likely tokens are forbidden.
  if (!all_forbidden_known || possible == 0) return std::nullopt;
  // Next to a dominant forbidden token, the rest would be lost in the rounding of the sum.
  if (forbidden_weight > 0.5 * likely.weight_sum) return std::nullopt;

  const double all = std::max(likely.weight_sum - forbidden_weight, weights[0]);
  const bool filters = params_.top_p < 1 || params_.min_p > 0;
  double kept_sum = all;
  int64_t kept = possible;
  if (filters) {
    // The filters must end among the likely tokens.
    double sum = 0;
    int64_t n = 0;
    const double least = params_.min_p * weights[0];
    for (; n < possible && sum < params_.top_p * all && weights[n] >= least; ++n) sum += weights[n];
    const bool ended = n < possible || sum >= params_.top_p * all;
    if (!ended) return std::nullopt;
    kept = std::max<int64_t>(n, 1);
    kept_sum = sum;
  }
  double rest = Uniform(generator_) * kept_sum;
  for (int64_t i = 0; i < kept; ++i) {
    if (rest < weights[i]) return likely.tokens[order[i]];
    rest -= weights[i];
  }
  if (filters) return likely.tokens[order[kept - 1]];  // reached only through rounding
  rest_ = rest;
  return std::nullopt;
}

int32_t Sampler::SampleRest(std::span<const float> logits, const LikelyTokens& likely,
                            std::span<const int32_t> forbidden) {
  if (!rest_) return Sample(logits, forbidden);
  double rest = *std::exchange(rest_, std::nullopt);
  const float largest = *std::max_element(likely.logits.begin(), likely.logits.end());
  auto next_likely = likely.tokens.begin();
  for (int32_t token = 0; token < std::ssize(logits); ++token) {
    if (next_likely != likely.tokens.end() && *next_likely == token) {
      ++next_likely;
      continue;
    }
    const float logit = Usable(logits[token]);
    if (logit == kImpossible) continue;
    rest -= Weight(logit, largest);
    if (rest < 0) return token;
  }
  // Reached only through rounding: the likeliest token that is allowed.
  kernels::Workspace& workspace = OwnWorkspace();
  const kernels::Workspace::Scope scope(workspace);
  float* const changed = workspace.Floats(std::ssize(logits));
  Change(logits, forbidden, nullptr, changed);
  return Row({changed, logits.size()}, workspace).MostLikely();
}

void Sampler::Change(std::span<const float> logits, std::span<const int32_t> forbidden,
                     const ChoosableTokens* choosable, float* changed) const {
  // Ids come from clients; ids without a logit have no effect.
  const auto known = [&](int32_t token) { return token >= 0 && token < std::ssize(logits); };
  if (params_.allowed.empty()) {
    std::copy(logits.begin(), logits.end(), changed);
  } else {
    std::fill_n(changed, logits.size(), kImpossible);
    for (const int32_t token : params_.allowed) {
      if (known(token)) changed[token] = logits[token];
    }
  }
  if (choosable != nullptr) Mask(*choosable, OwnWorkspace(), std::ssize(logits), changed);
  for (const int32_t token : forbidden) {
    if (known(token)) changed[token] = kImpossible;
  }
  for (const auto& [token, bias] : params_.logit_bias) {
    if (known(token)) changed[token] = ToLogit(double{Usable(changed[token])} + bias);
  }
  for (const auto& [token, occurrences] : occurrences_) {
    if (!known(token)) continue;
    const int32_t count = occurrences.output;
    double logit = Usable(changed[token]);
    const double repetition = params_.repetition_penalty;
    logit = logit > 0 ? logit / repetition : logit * repetition;
    if (count > 0) logit -= params_.presence_penalty;
    logit -= static_cast<double>(params_.frequency_penalty) * count;
    changed[token] = ToLogit(logit);
  }
}

}  // namespace triptych::serving
