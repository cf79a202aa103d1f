// What the server measures, as Prometheus reads it.
#ifndef TRIPTYCH_SERVER_CORE_METRICS_H_
#define TRIPTYCH_SERVER_CORE_METRICS_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "engine/serving/meters.h"
#include "engine/serving/stats.h"
#include "server/core/outcome.h"
#include "server/core/served_model.h"

namespace triptych {

// Of one model. What it points to must outlive it.
struct ModelMetrics {
  const ServedModel* model = nullptr;
  KvCacheStats stats;
  const EngineMeters* meters = nullptr;
  std::array<int64_t, kOutcomes.size()> requests{};  // by outcome
};

inline constexpr const char* kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

// Prometheus's text format. There are series for the models and the outcomes, and for nothing that
// clients name.
std::string MetricsText(std::span<const ModelMetrics> models);

}  // namespace triptych

#endif  // TRIPTYCH_SERVER_CORE_METRICS_H_
