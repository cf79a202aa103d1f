// The models a server hosts, and everything that may be asked of them.
#ifndef TRIPTYCH_SERVER_CORE_MODEL_REGISTRY_H_
#define TRIPTYCH_SERVER_CORE_MODEL_REGISTRY_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/serving/engine.h"
#include "server/core/access/admission.h"
#include "server/core/access/caller.h"
#include "server/core/access/semaphore.h"
#include "server/core/error.h"
#include "server/core/model_info.h"
#include "server/core/requests/generation.h"
#include "server/core/requests/request_ids.h"
#include "server/core/requests/request_params.h"
#include "server/core/requests/scoring.h"
#include "server/core/requests/validation.h"
#include "server/core/stats/outcome.h"
#include "server/core/stats/page_tokens.h"
#include "server/core/stats/stats_collector.h"
#include "server/core/worker.h"

namespace triptych::serving {
class EngineLoop;
}

namespace triptych::server {

// An engine, and what is known of the model that it serves.
struct ModelEntry {
  ModelInfo model;
  std::unique_ptr<serving::Engine> engine;
};

struct ModelPage {
  std::span<const ModelInfo> models;
  std::string next_page_token;  // empty on the last page
};

struct SequencePage {
  std::vector<LiveSequence> sequences;  // in order of arrival
  std::string next_page_token;          // empty on the last page
};

// Which models' statistics are watched, and how often.
struct StatsWatch {
  std::vector<size_t> models;  // of ModelRegistry::models()
  std::chrono::milliseconds interval;
  std::shared_ptr<void> place;  // among those that may watch; given back with the last copy
};

// Thread-safe, and never waits for an engine but in Drain and the destructor. Callbacks are called
// on a thread of the host's, with figures of one moment between two steps, or, with an error, at
// once; they must not block for long. The host outlives its generations.
class ModelRegistry {
 public:
  // How many streams of statistics there may be at once.
  static constexpr size_t kMaxWatchers = 64;

  // `on_device_lost` is called with one line when a GPU can compute no more; every request fails or
  // is refused from then on.
  ModelRegistry(std::vector<ModelEntry> served, const AdmissionLimits& limits,
                std::function<void(const std::string&)> on_device_lost = {});
  // Cancels what is live.
  ~ModelRegistry();
  ModelRegistry(const ModelRegistry&) = delete;
  ModelRegistry& operator=(const ModelRegistry&) = delete;

  const std::vector<ModelInfo>& models() const { return models_; }
  // The model of that name, or the only one if `name` is empty.
  Result<const ModelInfo*> Find(const std::string& name) const;
  Result<ModelPage> ListModels(const ListModelsParams& params) const;

  // Both functions: the call, admitted, checked and ready to be started.
  Result<std::shared_ptr<Generation>> Generate(const GenerateParams& params, const Caller& caller);
  Result<std::shared_ptr<Scoring>> Score(const ScoreParams& params, const Caller& caller);

  // Both functions: as of the same name in validation.h.
  Result<TokenizedText> Tokenize(const TokenizeParams& params) const;
  Result<std::string> Detokenize(const std::string& model, std::span<const int32_t> ids) const;

  // In block maps others' sequences have neither ids nor clients nor tokens, but for admin.
  void CollectStats(const StatsParams& params, const Caller& caller,
                    std::function<void(Result<RegistryStats>)> done);
  // The caller's own sequences, without their client; of everybody, and with it, for admin.
  void ListSequences(const ListSequencesParams& params, const Caller& caller,
                     std::function<void(Result<SequencePage>)> done);
  // Checks what is to be watched. The transport collects anew whenever the interval has passed.
  Result<StatsWatch> Watch(const WatchStatsParams& params);
  void CollectStats(const StatsWatch& watch, std::function<void(RegistryStats)> done);
  // What GET /metrics answers: MetricsText of every model. At once, whatever the engines do.
  std::string Metrics() const;

  // Requests whose calls are not over.
  int64_t live_requests() const { return admission_.live(); }
  // Refuses new requests from now on, and waits until the live ones have ended and their results
  // were delivered: until their generations are gone. After `timeout` those that still compute are
  // cancelled, and the result is false if any is left.
  bool Drain(std::chrono::nanoseconds timeout);

 private:
  class LoopHandle;
  class LoopEngines;

  // Indices into models_: of the model of that name, or the only one if `name` is empty.
  Result<size_t> FindIndex(const std::string& name) const;
  // An empty name means every model.
  Result<std::vector<size_t>> FindAll(const std::string& name) const;
  // Names a valid request: `sequences` of that number. Sets who it is from and when it came.
  void Identify(const Caller& caller, uint64_t sequences, serving::Request& request);
  // Of a request to the model with that index which is not taken.
  Error Refuse(size_t model, Outcome outcome, Error error);
  // Counts a request to that model when it ends, and writes a line about it.
  RequestLog Log(size_t model, const Caller& caller);

  // What is immutable after construction, or thread-safe by itself. Only the loop's thread touches
  // what engines_ points to, but for what engines say to others.
  std::vector<ModelInfo> models_;
  std::vector<std::unique_ptr<serving::Engine>> engines_;  // of each model
  std::vector<std::unique_ptr<EngineHandle>> handles_;     // to each engine
  std::vector<OutcomeCounts> outcomes_;                    // of each model's requests
  Admission admission_;
  RequestIds ids_;
  const PageTokens page_tokens_;
  Semaphore watchers_{kMaxWatchers};
  Worker worker_;
  std::unique_ptr<LoopEngines> loop_engines_;
  std::unique_ptr<StatsCollector> desk_;
  std::unique_ptr<serving::EngineLoop> loop_;  // dies first: its thread uses all of the above
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_MODEL_REGISTRY_H_
