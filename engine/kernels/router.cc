#include "engine/kernels/router.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace triptych::kernels {
namespace {

constexpr float kOutside = -std::numeric_limits<float>::infinity();
// Approximate cost of an expert's score, in multiply-adds.
constexpr int64_t kScoreWork = 32;

void Softmax(std::span<float> logits) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  float sum = 0;
  for (float& logit : logits) sum += logit = std::exp(logit - largest);
  for (float& score : logits) score /= sum;
}

void Sigmoid(std::span<float> logits) {
  for (float& logit : logits) logit = 1 / (1 + std::exp(-logit));
}

// Takes the index of the largest score that was not taken before, the lowest of equal ones.
// REQUIRES: one is left.
int64_t TakeLargest(std::span<float> scores, std::span<bool> taken) {
  int64_t best = -1;
  for (int64_t i = 0; i < std::ssize(scores); ++i) {
    if (!taken[i] && (best < 0 || scores[i] > scores[best])) best = i;
  }
  taken[best] = true;
  return best;
}

// Scratch memory of one row.
struct Scratch {
  std::span<float> scores;   // [E]
  std::span<float> choices;  // [E], scores plus bias
  std::span<float> groups;   // [E], of which as many are used as there are groups
  std::span<bool> taken;     // [E]
};

// The sum of the largest scores of a group.
float GroupScore(const Router& router, std::span<float> scores, std::span<bool> taken) {
  std::fill(taken.begin(), taken.end(), false);
  float sum = 0;
  const int64_t best = std::min(router.best_of_group, std::ssize(scores));
  for (int64_t i = 0; i < best; ++i) sum += scores[TakeLargest(scores, taken)];
  return sum;
}

// Puts the experts of all groups but the best outside.
void LimitToGroups(const Router& router, const Scratch& scratch) {
  const int64_t groups = router.groups, size = router.experts / groups;
  const std::span<float> sums = scratch.groups.subspan(0, groups);
  for (int64_t group = 0; group < groups; ++group) {
    sums[group] = GroupScore(router, scratch.choices.subspan(group * size, size),
                             scratch.taken.subspan(0, size));
  }
  std::fill(scratch.taken.begin(), scratch.taken.end(), false);
  for (int64_t i = 0; i < router.chosen_groups; ++i) {
    TakeLargest(sums, scratch.taken.subspan(0, groups));
  }
  for (int64_t group = 0; group < groups; ++group) {
    if (scratch.taken[group]) continue;
    const std::span<float> outside = scratch.choices.subspan(group * size, size);
    std::fill(outside.begin(), outside.end(), kOutside);
  }
}

void ChooseForRow(const Router& router, const float* logits, const Scratch& scratch,
                  int32_t* experts, float* weights) {
  std::copy_n(logits, router.experts, scratch.scores.begin());
  router.sigmoid ? Sigmoid(scratch.scores) : Softmax(scratch.scores);
  std::copy(scratch.scores.begin(), scratch.scores.end(), scratch.choices.begin());
  for (size_t i = 0; i < router.bias.size(); ++i) scratch.choices[i] += router.bias[i];
  if (router.chosen_groups < router.groups) LimitToGroups(router, scratch);
  std::fill(scratch.taken.begin(), scratch.taken.end(), false);
  for (int64_t i = 0; i < router.choices; ++i) TakeLargest(scratch.choices, scratch.taken);
  float sum = router.least_sum;
  for (int64_t expert = 0, i = 0; expert < router.experts; ++expert) {
    if (!scratch.taken[expert]) continue;
    experts[i] = static_cast<int32_t>(expert);
    weights[i] = scratch.scores[expert];
    sum += weights[i++];
  }
  const float factor = router.normalize ? router.scale / sum : router.scale;
  for (int64_t i = 0; i < router.choices; ++i) weights[i] *= factor;
}

}  // namespace

void ChooseExperts(const Router& router, const float* logits, int64_t rows, int32_t* experts,
                   float* weights, KernelContext& context) {
  const int64_t count = router.experts, choices = router.choices;
  const Workspace::Scope scope(context.workspace);
  float* const floats = context.workspace.Floats(rows * 3 * count);
  bool* const flags = context.workspace.Take<bool>(rows * count);
  context.pool.ForEach(rows, rows * count * (kScoreWork + choices), [&](int64_t row) {
    const auto size = static_cast<size_t>(count);
    const Scratch scratch{.scores = {floats + row * 3 * count, size},
                          .choices = {floats + (row * 3 + 1) * count, size},
                          .groups = {floats + (row * 3 + 2) * count, size},
                          .taken = {flags + row * count, size}};
    ChooseForRow(router, logits + row * count, scratch, experts + row * choices,
                 weights + row * choices);
  });
}

}  // namespace triptych::kernels
