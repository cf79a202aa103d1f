#include "server/grpc/watch_reactor.h"

#include <chrono>

#include "server/grpc/wire.h"

namespace triptych {

WatchReactor::WatchReactor(ModelHost& host, const StatsWatch& watch,
                           grpc::CallbackServerContext& context,
                           std::chrono::milliseconds stall_timeout)
    : host_(host),
      watch_(watch),
      stall_alarm_(std::make_shared<StallAlarm>(context, stall_timeout)) {
  Collect();
}

void WatchReactor::Collect() {
  host_.CollectStats(watch_, [this](const HostStats& stats) {
    *message_.mutable_stats() = ToProto(stats);
    stall_alarm_->Begin();
    StartWrite(&message_);
  });
}

void WatchReactor::OnWriteDone(bool ok) {
  stall_alarm_->End();
  bool wait = false;
  {
    const MutexLock lock(mutex_);
    cancelled_ = cancelled_ || !ok;
    wait = !cancelled_;
    if (wait) {
      // Set under the lock, so that OnCancel either sees the alarm or is seen.
      waiting_ = true;
      alarm_.Set(std::chrono::system_clock::now() + watch_.interval, [this](bool) { OnAlarm(); });
    }
  }
  if (!wait) Finish(grpc::Status::CANCELLED);
}

void WatchReactor::OnCancel() {
  const MutexLock lock(mutex_);
  cancelled_ = true;
  if (waiting_) alarm_.Cancel();
}

void WatchReactor::OnAlarm() {
  bool end = false;
  {
    const MutexLock lock(mutex_);
    waiting_ = false;
    end = cancelled_;
  }
  if (end) {
    Finish(grpc::Status::CANCELLED);
  } else {
    Collect();
  }
}

}  // namespace triptych
