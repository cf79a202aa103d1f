// The core of a server: its models, their engines, and what transports ask of them.
#ifndef TRIPTYCH_SERVER_CORE_SERVER_CORE_H_
#define TRIPTYCH_SERVER_CORE_SERVER_CORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/serving/engine.h"
#include "server/core/access/admission.h"
#include "server/core/engine_thread.h"
#include "server/core/model_info.h"
#include "server/core/model_registry.h"
#include "server/core/requests/request_service.h"
#include "server/core/stats/kv_event_streams.h"
#include "server/core/stats/stats_service.h"
#include "server/core/transport_options.h"

namespace triptych::server {

// An engine and the description of its model.
struct ModelEntry {
  ModelInfo model;
  std::unique_ptr<serving::Engine> engine;
};

struct ServerCore {
  // `max_message_bytes` and `observer`: as of RequestService. `on_device_lost` is called once, with
  // one line, when a GPU can compute no more; every request fails or is refused from then on.
  explicit ServerCore(std::vector<ModelEntry> entries, const AdmissionLimits& limits = {},
                      int64_t max_message_bytes = TransportLimits().max_message_bytes,
                      std::function<void(const std::string&)> on_device_lost = {},
                      RequestObserver observer = {});
  // Cancels the live requests.
  ~ServerCore();
  ServerCore(const ServerCore&) = delete;
  ServerCore& operator=(const ServerCore&) = delete;

  const ModelRegistry models;
  EngineLoopThread engines;
  RequestService requests;
  StatsService stats;
  KvEventStreams kv_events;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_SERVER_CORE_H_
