// Statistics of the models and their sequences, as each caller may see them.
#ifndef TRIPTYCH_SERVER_CORE_STATS_STATS_SERVICE_H_
#define TRIPTYCH_SERVER_CORE_STATS_STATS_SERVICE_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/core/access/caller.h"
#include "server/core/access/semaphore.h"
#include "server/core/engine_thread.h"
#include "server/core/error.h"
#include "server/core/model_registry.h"
#include "server/core/requests/request_params.h"
#include "server/core/requests/request_service.h"
#include "server/core/stats/model_stats.h"
#include "server/core/stats/page_tokens.h"
#include "server/core/stats/stats_collector.h"
#include "server/core/worker.h"

namespace triptych::server {

struct SequencePage {
  std::vector<LiveSequence> sequences;  // in order of arrival
  std::string next_page_token;          // empty on the last page
};

// The models whose statistics a stream watches, and how often.
struct StatsWatch {
  std::vector<size_t> models;  // indices into ModelRegistry::models()
  std::chrono::milliseconds interval;
  std::shared_ptr<void> permit;  // of StatsService::kMaxWatchers; released with the last copy
};

// Thread-safe, and never waits for an engine. Calls `done` on a thread of its own, with the state
// of one moment between two steps, or at once with an error; `done` must not block for long.
class StatsService {
 public:
  // Bound on the streams of statistics of all clients.
  static constexpr size_t kMaxWatchers = 64;

  // All must outlive the service, and the engines must have stopped when it is destroyed.
  StatsService(const ModelRegistry& models, EngineLoopThread& engines,
               const RequestService& requests);
  StatsService(const StatsService&) = delete;
  StatsService& operator=(const StatsService&) = delete;

  // In block maps, only admin sees the ids, clients and tokens of other clients' sequences.
  void Collect(const StatsParams& params, const Caller& caller,
               std::function<void(Result<RegistryStats>)> done);
  // The caller's own sequences, without their client; every client's, with it, for admin.
  void ListSequences(const ListSequencesParams& params, const Caller& caller,
                     std::function<void(Result<SequencePage>)> done);
  // Checks what is to be watched. The transport collects again whenever the interval has passed.
  Result<StatsWatch> Watch(const WatchStatsParams& params);
  void Collect(const StatsWatch& watch, std::function<void(RegistryStats)> done);
  // MetricsText of every model, for GET /metrics. At once, whatever the engines do.
  std::string Metrics() const;

 private:
  const ModelRegistry& models_;
  EngineLoopThread& engines_;
  const RequestService& requests_;
  const PageTokens page_tokens_;
  Semaphore watchers_{kMaxWatchers};
  StatsCollector collector_;
  Worker answer_worker_;  // last: its thread uses all of the above
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_STATS_STATS_SERVICE_H_
