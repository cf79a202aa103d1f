// Server side of one WatchKvCacheStats stream.
#ifndef TRIPTYCH_SERVER_GRPC_WATCH_REACTOR_H_
#define TRIPTYCH_SERVER_GRPC_WATCH_REACTOR_H_

#include <grpcpp/alarm.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <memory>
#include <set>

#include "engine/base/mutex.h"
#include "server/core/stats/stats_service.h"
#include "server/grpc/stall_alarm.h"
#include "triptych/v1/kv_cache.pb.h"

namespace triptych::server {

class WatchReactor;

// Set of the open WatchKvCacheStats streams. Thread-safe.
class OpenWatches {
 public:
  // Ends all streams, including later ones, with UNAVAILABLE.
  void End() TRIPTYCH_EXCLUDES(mutex_);

 private:
  friend class WatchReactor;

  void Add(WatchReactor* watch) TRIPTYCH_EXCLUDES(mutex_);
  void Remove(WatchReactor* watch) TRIPTYCH_EXCLUDES(mutex_);

  Mutex mutex_;
  bool ended_ TRIPTYCH_GUARDED_BY(mutex_) = false;
  std::set<WatchReactor*> watches_ TRIPTYCH_GUARDED_BY(mutex_);
};

// Collects statistics, writes them and waits for the interval, until the call ends. Deletes itself.
// Thread-safe.
//
// At any time exactly one of the registry's callback, gRPC's write and the alarm is pending; its
// completion owns the stream and starts the next step or finishes.
class WatchReactor final : public grpc::ServerWriteReactor<v1::WatchKvCacheStatsResponse> {
 public:
  // The service and `open` must outlive the call.
  WatchReactor(StatsService& stats, const StatsWatch& watch, OpenWatches& open,
               grpc::CallbackServerContext& context, std::chrono::milliseconds stall_timeout);

  void OnWriteDone(bool ok) override TRIPTYCH_EXCLUDES(mutex_);
  void OnCancel() override { Stop(End::kCancelled); }
  void OnDone() override {
    stall_alarm_->Stop();
    open_.Remove(this);
    delete this;
  }
  // The server has drained.
  void OnDrain() { Stop(End::kDraining); }

 private:
  enum class End { kNotYet, kCancelled, kDraining };

  void Collect();
  void OnAlarm() TRIPTYCH_EXCLUDES(mutex_);
  // Finishes the stream as soon as nothing is in flight.
  void Stop(End end) TRIPTYCH_EXCLUDES(mutex_);
  void FinishAs(End end);

  StatsService& stats_;
  const StatsWatch watch_;
  OpenWatches& open_;
  grpc::CallbackServerContext& context_;
  const std::shared_ptr<StallAlarm> stall_alarm_;
  v1::WatchKvCacheStatsResponse message_;  // owned by gRPC while a write is in flight

  Mutex mutex_;
  End end_ TRIPTYCH_GUARDED_BY(mutex_) = End::kNotYet;
  bool waiting_ TRIPTYCH_GUARDED_BY(mutex_) = false;  // the alarm is set
  grpc::Alarm alarm_ TRIPTYCH_GUARDED_BY(mutex_);
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_GRPC_WATCH_REACTOR_H_
