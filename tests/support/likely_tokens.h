// Reference for the likely tokens that a device finds in a row of logits.
#ifndef TRIPTYCH_TESTS_SUPPORT_LIKELY_TOKENS_H_
#define TRIPTYCH_TESTS_SUPPORT_LIKELY_TOKENS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "engine/backend/model_backend.h"

namespace triptych {

// Owns the memory that LikelyTokens refers to.
struct LikelyRow {
  std::vector<int32_t> tokens;
  std::vector<float> logits;
  double log_sum_exp = 0;
  double weight_sum = 0;

  // By sorting the row, in float64.
  LikelyRow(std::span<const float> row, int64_t count, float scale = 1) {
    const auto usable = [&](int32_t token) {
      const float logit = row[token];
      if (std::isnan(logit)) return -std::numeric_limits<float>::infinity();
      return std::min(logit, std::numeric_limits<float>::max());
    };
    tokens.resize(row.size());
    std::iota(tokens.begin(), tokens.end(), 0);
    std::stable_sort(tokens.begin(), tokens.end(),
                     [&](int32_t a, int32_t b) { return usable(a) > usable(b); });
    const double largest = usable(tokens[0]);
    double sum = 0;
    if (std::isfinite(largest)) {
      for (size_t i = 0; i < row.size(); ++i) {
        const double below = usable(static_cast<int32_t>(i)) - largest;
        sum += std::exp(below);
        weight_sum += std::exp(scale * below);
      }
    }
    log_sum_exp = largest + std::log(sum);
    tokens.resize(std::min<size_t>(tokens.size(), count));
    std::sort(tokens.begin(), tokens.end());
    for (const int32_t token : tokens) logits.push_back(usable(token));
  }

  LikelyTokens View() const {
    return {
        .tokens = tokens, .logits = logits, .log_sum_exp = log_sum_exp, .weight_sum = weight_sum};
  }
};

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_SUPPORT_LIKELY_TOKENS_H_
