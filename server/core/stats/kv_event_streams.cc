#include "server/core/stats/kv_event_streams.h"

#include <chrono>

namespace triptych::server {

double UnixSeconds(const KvEventBatch& batch) {
  const auto age = std::chrono::steady_clock::now() - batch.time;
  const auto time = std::chrono::system_clock::now().time_since_epoch() - age;
  return std::chrono::duration<double>(time).count();
}

KvEventStreams::KvEventStreams(EngineLoopThread& engines, size_t models)
    : engines_(engines), start_asked_(models) {
  for (size_t model = 0; model < models; ++model) {
    engines_.OnKvEvents(model, [this] { TellSoon(); });
  }
}

void KvEventStreams::TellSoon() {
  if (posted_.exchange(true)) return;
  try {
    worker_.Post([this] { Tell(); });
  } catch (...) {  // no memory: the next event tries again
    posted_ = false;
  }
}

void KvEventStreams::Tell() {
  posted_ = false;
  const MutexLock lock(mutex_);
  for (KvEventListener* listener : listeners_) listener->OnEvents();
}

void KvEventStreams::Add(KvEventListener& listener) {
  const MutexLock lock(mutex_);
  listeners_.insert(&listener);
}

void KvEventStreams::Remove(KvEventListener& listener) {
  const MutexLock lock(mutex_);
  listeners_.erase(&listener);
}

void KvEventStreams::AskForStart(size_t model) {
  if (start_asked_[model].exchange(true)) return;
  engines_.RestartKvEvents(model, [this, model] { start_asked_[model] = false; });
}

void KvEventStreams::End() {
  ended_ = true;
  TellSoon();
}

}  // namespace triptych::server
