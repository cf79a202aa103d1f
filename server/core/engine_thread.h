// Interface to the thread that runs all engines.
#ifndef TRIPTYCH_SERVER_CORE_ENGINE_THREAD_H_
#define TRIPTYCH_SERVER_CORE_ENGINE_THREAD_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/kv_cache/kv_event_log.h"
#include "engine/serving/engine.h"
#include "engine/serving/engine_loop.h"
#include "engine/serving/engine_metrics.h"
#include "engine/serving/request.h"
#include "engine/serving/stats.h"
#include "server/core/model_registry.h"
#include "server/core/stats/model_stats.h"

namespace triptych::server {

// Reaches one engine for each model of ModelRegistry::models(); `model` is an index into it.
class EngineThread {
 public:
  virtual ~EngineThread() = default;

  // Thread-safe. None of these waits for the engines.
  //
  // The engine calls the sink on the engines' thread; never if this throws.
  virtual void Submit(size_t model, serving::Request request,
                      std::shared_ptr<serving::RequestSink> sink) = 0;
  // Frees the request's KV cache by the next step. Harmless when the request has ended. Throws
  // nothing: without memory for the cancellation the request goes on.
  virtual void Cancel(size_t model, const std::string& id) = 0;
  // Runs `task` on the engines' thread before the next step. It must not block.
  virtual void Post(std::function<void()> task) = 0;

  // REQUIRES: called by a posted task.
  //
  // Statistics of every model, in the order of the models.
  virtual std::vector<ModelStats> Snapshot(bool block_maps) = 0;
  // In any order. One more than the listing's limit of each model, so that the caller knows
  // whether there are more.
  virtual std::vector<LiveSequence> Sequences(const SequenceListing& listing) = 0;
};

// Owns the engines, and runs them on an EngineLoop.
class EngineLoopThread final : public EngineThread {
 public:
  // `engines`: of each model. The models must outlive this. `on_device_lost`: as of EngineLoop.
  EngineLoopThread(const ModelRegistry& models,
                   std::vector<std::unique_ptr<serving::Engine>> engines,
                   std::function<void(const std::string&)> on_device_lost);

  void Submit(size_t model, serving::Request request,
              std::shared_ptr<serving::RequestSink> sink) override;
  void Cancel(size_t model, const std::string& id) override;
  void Post(std::function<void()> task) override { loop_.Post(std::move(task)); }
  std::vector<ModelStats> Snapshot(bool block_maps) override;
  std::vector<LiveSequence> Sequences(const SequenceListing& listing) override;

  // As of EngineLoop: Drain refuses new requests and waits for the live ones, Stop cancels them and
  // ends the thread. After Stop no sink is called and no task runs.
  bool Drain(std::chrono::nanoseconds timeout) { return loop_.Drain(timeout); }
  void Stop() { loop_.Stop(); }

  // These are read at once, whatever the engine does at the moment.
  serving::KvCacheStats Published(size_t model) const { return engines_[model]->Published(); }
  const serving::EngineMetrics& metrics(size_t model) const { return engines_[model]->metrics(); }
  std::optional<ExpertLoad> expert_load(size_t model) const {
    return engines_[model]->expert_load();
  }
  const KvEventLog* kv_events(size_t model) const { return engines_[model]->kv_events(); }
  // As of KvEventLog, if the model has events. Called before the first request.
  void OnKvEvents(size_t model, std::function<void()> on_batch);
  // Restarts the model's events between two steps, then calls `done` on the engines' thread.
  // REQUIRES: it has some.
  void RestartKvEvents(size_t model, std::function<void()> done);

 private:
  const ModelRegistry& models_;
  const std::vector<std::unique_ptr<serving::Engine>> engines_;
  serving::EngineLoop loop_;  // last: its thread uses the engines
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_ENGINE_THREAD_H_
