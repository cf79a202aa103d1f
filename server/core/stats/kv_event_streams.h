// Streams of the events of the models' prefix caches.
#ifndef TRIPTYCH_SERVER_CORE_STATS_KV_EVENT_STREAMS_H_
#define TRIPTYCH_SERVER_CORE_STATS_KV_EVENT_STREAMS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/kv_cache/kv_event_log.h"
#include "server/core/access/semaphore.h"
#include "server/core/engine_thread.h"
#include "server/core/worker.h"

namespace triptych::server {

// A batch's time for routers: seconds since 1970, by the present setting of the system's clock.
double UnixSeconds(const KvEventBatch& batch);

// Implemented by a transport.
class KvEventListener {
 public:
  virtual ~KvEventListener() = default;
  // There may be batches to read, or the end. Called on a thread of KvEventStreams, until Remove
  // returns; must not call KvEventStreams, except AskForStart.
  virtual void OnEvents() = 0;
};

// Tells listeners of new batches, on a thread of its own: a step never waits for a listener.
// Thread-safe.
class KvEventStreams {
 public:
  // Bound on the streams of all clients and models.
  static constexpr size_t kMaxStreams = 64;

  // `models`: their number. The engines must outlive the streams, and must have stopped when they
  // are destroyed.
  KvEventStreams(EngineLoopThread& engines, size_t models);
  KvEventStreams(const KvEventStreams&) = delete;
  KvEventStreams& operator=(const KvEventStreams&) = delete;

  // The model's events; null if there are none.
  const KvEventLog* log(size_t model) const { return engines_.kv_events(model); }
  // A place among kMaxStreams; null if none is left.
  std::shared_ptr<void> TakePlace() { return places_.Take(); }
  void Add(KvEventListener& listener) TRIPTYCH_EXCLUDES(mutex_);
  void Remove(KvEventListener& listener) TRIPTYCH_EXCLUDES(mutex_);
  // Makes the log complete again (KvEventLog::Kept), soon.
  void AskForStart(size_t model);
  // Listeners end their streams.
  void End();
  bool ended() const { return ended_; }

 private:
  void TellSoon();
  void Tell() TRIPTYCH_EXCLUDES(mutex_);

  EngineLoopThread& engines_;
  Semaphore places_{kMaxStreams};
  std::vector<std::atomic<bool>> start_asked_;  // of each model, and not there yet
  std::atomic<bool> ended_ = false;
  std::atomic<bool> posted_ = false;
  Mutex mutex_;
  std::set<KvEventListener*> listeners_ TRIPTYCH_GUARDED_BY(mutex_);
  Worker worker_;  // last: its thread uses all of the above
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_STATS_KV_EVENT_STREAMS_H_
