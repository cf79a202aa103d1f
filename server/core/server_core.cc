#include "server/core/server_core.h"

#include <utility>

namespace triptych::server {
namespace {

std::vector<ModelInfo> TakeModels(std::vector<ModelEntry>& entries) {
  std::vector<ModelInfo> models;
  models.reserve(entries.size());
  for (ModelEntry& entry : entries) models.push_back(std::move(entry.model));
  return models;
}

std::vector<std::unique_ptr<serving::Engine>> TakeEngines(std::vector<ModelEntry>& entries) {
  std::vector<std::unique_ptr<serving::Engine>> engines;
  engines.reserve(entries.size());
  for (ModelEntry& entry : entries) engines.push_back(std::move(entry.engine));
  return engines;
}

}  // namespace

ServerCore::ServerCore(std::vector<ModelEntry> entries, const AdmissionLimits& limits,
                       int64_t max_message_bytes,
                       std::function<void(const std::string&)> on_device_lost,
                       RequestObserver observer)
    : models(TakeModels(entries)),
      engines(models, TakeEngines(entries), std::move(on_device_lost)),
      requests(models, engines, limits, max_message_bytes, std::move(observer)),
      stats(models, engines, requests),
      kv_events(engines, models.models().size()) {}

ServerCore::~ServerCore() {
  engines.Stop();  // first: its thread uses the services
}

}  // namespace triptych::server
