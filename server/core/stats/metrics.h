// Metrics in Prometheus's text format.
#ifndef TRIPTYCH_SERVER_CORE_STATS_METRICS_H_
#define TRIPTYCH_SERVER_CORE_STATS_METRICS_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "engine/backend/model_backend.h"
#include "engine/serving/engine_metrics.h"
#include "engine/serving/stats.h"
#include "server/core/model_info.h"
#include "server/core/stats/outcome.h"

namespace triptych::server {

// Measurements of one model. The pointees must outlive it.
struct ModelMetrics {
  const ModelInfo* model = nullptr;
  serving::KvCacheStats stats;
  const serving::EngineMetrics* metrics = nullptr;
  std::array<int64_t, kOutcomes.size()> requests{};  // by outcome
  std::optional<ExpertLoad> expert_load = {};        // absent without experts
};

inline constexpr const char* kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

// All metrics in Prometheus's text format. Labels are models, attention kinds and outcomes, never
// names that clients choose.
std::string MetricsText(std::span<const ModelMetrics> models);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_STATS_METRICS_H_
