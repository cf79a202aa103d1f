#include "engine/serving/sampler.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

namespace triptych {
namespace {

constexpr double kImpossible = -std::numeric_limits<double>::infinity();

double Usable(float logit) {
  if (std::isnan(logit)) return kImpossible;
  return std::min(logit, std::numeric_limits<float>::max());
}

int32_t MostLikely(std::span<const float> logits) {
  int32_t best = -1;
  double best_logit = kImpossible;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double logit = Usable(logits[i]);
    if (logit > best_logit) {
      best = static_cast<int32_t>(i);
      best_logit = logit;
    }
  }
  return best;
}

struct Candidate {
  int32_t token;
  double score;  // a logit, later a probability up to a common factor
};

void TakeAll(std::span<const float> logits, std::vector<Candidate>& candidates) {
  candidates.resize(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    candidates[i] = {static_cast<int32_t>(i), Usable(logits[i])};
  }
}

// A total order, so that what is kept never depends on the library's algorithms.
bool MoreLikely(const Candidate& a, const Candidate& b) {
  return a.score != b.score ? a.score > b.score : a.token < b.token;
}

// Drops every candidate after `last` and leaves the rest in order of ids.
void KeepUpTo(const Candidate& last, std::vector<Candidate>& candidates) {
  std::erase_if(candidates, [last](const Candidate& c) { return MoreLikely(last, c); });
}

void KeepTopK(int32_t k, std::vector<Candidate>& candidates) {
  if (static_cast<size_t>(k) >= candidates.size()) return;
  thread_local std::vector<Candidate> order;
  order = candidates;
  const auto last = order.begin() + (k - 1);
  std::nth_element(order.begin(), last, order.end(), MoreLikely);
  KeepUpTo(*last, candidates);
}

double Total(const std::vector<Candidate>& candidates) {
  return std::accumulate(candidates.begin(), candidates.end(), 0.0,
                         [](double sum, const Candidate& c) { return sum + c.score; });
}

void KeepTopP(double p, std::vector<Candidate>& candidates) {
  const double enough = p * Total(candidates);
  const auto less_likely = [](const Candidate& a, const Candidate& b) { return MoreLikely(b, a); };
  thread_local std::vector<Candidate> heap;
  heap = candidates;
  std::make_heap(heap.begin(), heap.end(), less_likely);
  double reached = 0;
  while (true) {
    std::pop_heap(heap.begin(), heap.end(), less_likely);
    const Candidate last = heap.back();
    heap.pop_back();
    reached += last.score;
    if (reached >= enough || heap.empty()) return KeepUpTo(last, candidates);
  }
}

}  // namespace

double LogSumExp(std::span<const float> logits) {
  double max = kImpossible;
  for (const float logit : logits) max = std::max(max, Usable(logit));
  if (max == kImpossible) return kImpossible;
  double sum = 0;
  for (const float logit : logits) sum += std::exp(Usable(logit) - max);
  return max + std::log(sum);
}

TokenLogprobs Logprobs(std::span<const float> logits, int32_t chosen, int32_t top) {
  const double normalizer = LogSumExp(logits);
  const auto logprob = [&](int32_t token) {
    const double logit = Usable(logits[token]);
    const double value = logit == kImpossible ? kImpossible : logit - normalizer;
    return TokenLogprob{token, static_cast<float>(value)};
  };
  TokenLogprobs result{logprob(chosen), {}};
  if (top <= 0) return result;

  thread_local std::vector<Candidate> order;
  TakeAll(logits, order);
  const auto end = order.begin() + std::min<int64_t>(top, std::ssize(order));
  std::partial_sort(order.begin(), end, order.end(), MoreLikely);
  std::transform(order.begin(), end, std::back_inserter(result.top),
                 [&](const Candidate& c) { return logprob(c.token); });
  return result;
}

Sampler::Sampler(SamplingParams params, uint64_t seed, std::span<const int32_t> prompt)
    : params_(std::move(params)),
      generator_(seed),
      penalizes_(params_.repetition_penalty != 1 || params_.presence_penalty != 0 ||
                 params_.frequency_penalty != 0) {
  if (!penalizes_) return;
  for (const int32_t token : prompt) output_counts_.try_emplace(token, 0);
}

int32_t Sampler::Sample(std::span<const float> logits, std::span<const int32_t> forbidden) {
  const bool plain = params_.temperature == 0 && params_.logit_bias.empty() && !penalizes_ &&
                     params_.allowed.empty() && forbidden.empty();
  const int32_t token = plain ? MostLikely(logits) : Choose(logits, forbidden);
  if (penalizes_ && token >= 0) ++output_counts_[token];
  return token;
}

int32_t Sampler::Choose(std::span<const float> logits, std::span<const int32_t> forbidden) {
  thread_local std::vector<Candidate> candidates;  // a step takes nothing from the heap
  TakeAll(logits, candidates);
  // Ids come from clients: those without a logit have no effect.
  const auto known = [&](int32_t token) { return token >= 0 && token < std::ssize(logits); };
  if (!params_.allowed.empty()) {
    for (Candidate& c : candidates) c.score = kImpossible;
    for (const int32_t token : params_.allowed) {
      if (known(token)) candidates[token].score = Usable(logits[token]);
    }
  }
  for (const int32_t token : forbidden) {
    if (known(token)) candidates[token].score = kImpossible;
  }
  for (const auto& [token, bias] : params_.logit_bias) {
    if (known(token)) candidates[token].score += bias;
  }
  for (const auto& [token, count] : output_counts_) {
    if (!known(token)) continue;
    double& logit = candidates[token].score;
    const double repetition = params_.repetition_penalty;
    logit = logit > 0 ? logit / repetition : logit * repetition;
    if (count > 0) logit -= params_.presence_penalty;
    logit -= static_cast<double>(params_.frequency_penalty) * count;
  }

  std::erase_if(candidates, [](const Candidate& c) { return c.score == kImpossible; });
  if (candidates.empty()) return -1;
  const Candidate best = *std::min_element(candidates.begin(), candidates.end(), MoreLikely);
  if (params_.temperature == 0) return best.token;

  // Each filter sees the distribution that the one before it left.
  if (params_.top_k > 0) KeepTopK(params_.top_k, candidates);
  for (Candidate& c : candidates) c.score = std::exp((c.score - best.score) / params_.temperature);
  if (params_.top_p < 1) KeepTopP(params_.top_p, candidates);
  std::erase_if(candidates, [&](const Candidate& c) { return c.score < params_.min_p; });

  // 53 random bits make a double in [0, 1); the library's distributions differ between platforms.
  double rest = static_cast<double>(generator_() >> 11) * 0x1p-53 * Total(candidates);
  for (const Candidate& c : candidates) {
    if (rest < c.score) return c.token;
    rest -= c.score;
  }
  return best.token;  // only if rounding has left a rest
}

}  // namespace triptych
