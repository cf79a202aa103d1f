#include "engine/backend/expert_load.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace triptych {

void AddExpertLoad(std::span<const std::atomic<int64_t>> tokens, ExpertLoad& load) {
  int64_t sum = 0, least = std::numeric_limits<int64_t>::max(), most = 0;
  for (const std::atomic<int64_t>& counter : tokens) {
    const int64_t count = counter.load(std::memory_order_relaxed);
    sum += count;
    least = std::min(least, count);
    most = std::max(most, count);
    if (count == 0) ++load.untouched;
  }
  if (sum == 0) return;
  const double mean = static_cast<double>(sum) / static_cast<double>(tokens.size());
  load.tokens += sum;
  load.least = std::min(load.least, static_cast<double>(least) / mean);
  load.most = std::max(load.most, static_cast<double>(most) / mean);
}

double ExpectedExperts(const ExpertsConfig& experts, double tokens) {
  const auto count = static_cast<double>(experts.n_routed_experts);
  const double chosen = static_cast<double>(experts.num_experts_per_tok) / count;
  return count * (1 - std::pow(1 - chosen, tokens));
}

}  // namespace triptych
