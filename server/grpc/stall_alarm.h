// Alarm that cancels calls of clients that stop reading.
#ifndef TRIPTYCH_SERVER_GRPC_STALL_ALARM_H_
#define TRIPTYCH_SERVER_GRPC_STALL_ALARM_H_

#include <grpc/grpc.h>
#include <grpcpp/alarm.h>
#include <grpcpp/server_context.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "engine/base/mutex.h"

namespace triptych::server {

// Cancels a call when one write, or the finish, has waited for the client for `timeout` to
// 2 * `timeout`. A client that keeps its connection open without reading would otherwise hold the
// reply and its permits. Thread-safe; lives in a shared_ptr.
class StallAlarm final : public std::enable_shared_from_this<StallAlarm> {
 public:
  StallAlarm(grpc::ServerContextBase& context, std::chrono::milliseconds timeout)
      : call_(context.c_call()), timeout_(timeout) {
    grpc_call_ref(call_);
  }
  ~StallAlarm() { grpc_call_unref(call_); }
  StallAlarm(const StallAlarm&) = delete;
  StallAlarm& operator=(const StallAlarm&) = delete;

  // A write, or the finish, has started.
  void Begin() TRIPTYCH_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    ++begun_;
    in_flight_ = true;
    if (!set_ && !stopped_) Set();
  }
  // It has completed.
  void End() TRIPTYCH_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    in_flight_ = false;
  }
  // The call is over.
  void Stop() TRIPTYCH_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    stopped_ = true;
    if (set_) alarm_->Cancel();
  }

 private:
  // Sets the only alarm. It checks for progress since it was set, so that writes need no timers of
  // their own. Its function keeps this object alive until it has run.
  void Set() TRIPTYCH_REQUIRES(mutex_) {
    set_ = true;
    seen_ = begun_;
    // A new alarm: the old one's function may be running. emplace, because the assignment of gRPC
    // 1.51 leaks the old alarm.
    alarm_.emplace();
    alarm_->Set(
        std::chrono::system_clock::now() + timeout_,
        [self = shared_from_this()](bool) mutable { std::exchange(self, nullptr)->OnAlarm(); });
  }

  void OnAlarm() TRIPTYCH_EXCLUDES(mutex_) {
    {
      const MutexLock lock(mutex_);
      set_ = false;
      if (stopped_ || !in_flight_) return;
      if (begun_ != seen_) return Set();
    }
    grpc_call_cancel_with_status(call_, GRPC_STATUS_RESOURCE_EXHAUSTED,
                                 "the client does not read its stream", nullptr);
  }

  grpc_call* const call_;  // its reference outlives the context
  const std::chrono::milliseconds timeout_;
  Mutex mutex_;
  uint64_t begun_ TRIPTYCH_GUARDED_BY(mutex_) = 0;
  uint64_t seen_ TRIPTYCH_GUARDED_BY(mutex_) = 0;  // begun_ when the alarm was set
  bool in_flight_ TRIPTYCH_GUARDED_BY(mutex_) = false;
  bool set_ TRIPTYCH_GUARDED_BY(mutex_) = false;
  bool stopped_ TRIPTYCH_GUARDED_BY(mutex_) = false;
  std::optional<grpc::Alarm> alarm_ TRIPTYCH_GUARDED_BY(mutex_);
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_GRPC_STALL_ALARM_H_
