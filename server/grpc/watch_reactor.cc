#include "server/grpc/watch_reactor.h"

#include <chrono>

#include "server/grpc/status.h"
#include "server/grpc/wire.h"

namespace triptych::server {

void OpenWatches::End() {
  const MutexLock lock(mutex_);
  ended_ = true;
  for (WatchReactor* watch : watches_) watch->OnDrain();
}

void OpenWatches::Add(WatchReactor* watch) {
  const MutexLock lock(mutex_);
  watches_.insert(watch);
  if (ended_) watch->OnDrain();
}

void OpenWatches::Remove(WatchReactor* watch) {
  const MutexLock lock(mutex_);
  watches_.erase(watch);
}

WatchReactor::WatchReactor(StatsService& stats, const StatsWatch& watch, OpenWatches& open,
                           grpc::CallbackServerContext& context,
                           std::chrono::milliseconds stall_timeout)
    : stats_(stats),
      watch_(watch),
      open_(open),
      context_(context),
      stall_alarm_(std::make_shared<StallAlarm>(context, stall_timeout)) {
  open_.Add(this);
  Collect();
}

void WatchReactor::Collect() {
  stats_.Collect(watch_, [this](const RegistryStats& now) {
    *message_.mutable_stats() = ToProto(now);
    stall_alarm_->Begin();
    StartWrite(&message_);
  });
}

void WatchReactor::OnWriteDone(bool ok) {
  stall_alarm_->End();
  if (!ok) Stop(End::kCancelled);
  End end = End::kNotYet;
  {
    const MutexLock lock(mutex_);
    end = end_;
    if (end == End::kNotYet) {
      // Under the lock, so that either Stop cancels this alarm or this sees Stop's end_.
      waiting_ = true;
      alarm_.Set(std::chrono::system_clock::now() + watch_.interval, [this](bool) { OnAlarm(); });
    }
  }
  if (end != End::kNotYet) FinishAs(end);
}

void WatchReactor::OnAlarm() {
  End end = End::kNotYet;
  {
    const MutexLock lock(mutex_);
    waiting_ = false;
    end = end_;
  }
  if (end == End::kNotYet) {
    Collect();
  } else {
    FinishAs(end);
  }
}

void WatchReactor::Stop(End end) {
  const MutexLock lock(mutex_);
  if (end_ != End::kNotYet) return;
  end_ = end;
  if (waiting_) alarm_.Cancel();
}

void WatchReactor::FinishAs(End end) {
  Finish(end == End::kDraining ? ToStatus(Draining(), context_) : grpc::Status::CANCELLED);
}

}  // namespace triptych::server
