#include "engine/kv_cache/kv_event_log.h"

#include <cassert>
#include <iterator>

namespace triptych {

std::vector<KvEventRun> Runs(const KvEventBatch& batch, int64_t block_positions) {
  const std::span<const KvEvent> events = batch.events;
  std::span<const int32_t> tokens = batch.tokens;
  const auto joins = [&](size_t i) {
    const KvEvent& event = events[i];
    const KvEvent& before = events[i - 1];
    if (event.kind != before.kind) return false;
    return event.kind == KvEvent::Kind::kRemoved ||
           (event.kind == KvEvent::Kind::kStored && event.parent == before.block);
  };
  std::vector<KvEventRun> runs;
  for (size_t begin = 0, end = 0; begin < events.size(); begin = end) {
    for (end = begin + 1; end < events.size() && joins(end); ++end) {
    }
    const bool stores = events[begin].kind == KvEvent::Kind::kStored;
    const size_t count = stores ? (end - begin) * block_positions : 0;
    runs.push_back(
        {batch.first_event + begin, events.subspan(begin, end - begin), tokens.first(count)});
    tokens = tokens.subspan(count);
  }
  return runs;
}

KvEventLog::KvEventLog(int64_t block_positions, int64_t kept_events, uint64_t first)
    : block_positions_(block_positions), kept_events_(kept_events), start_(first), next_(first) {}

void KvEventLog::Add(const KvEvent& event, std::span<const int32_t> tokens) {
  assert((event.kind == KvEvent::Kind::kStored) == (std::ssize(tokens) == block_positions_));
  added_.events.push_back(event);
  added_.tokens.insert(added_.tokens.end(), tokens.begin(), tokens.end());
}

void KvEventLog::Publish(std::chrono::steady_clock::time_point now) {
  if (added_.events.empty()) return;
  const auto batch = std::make_shared<KvEventBatch>(std::exchange(added_, {}));
  batch->time = now;
  batch->first_event = events_ + 1;
  events_ += batch->events.size();
  std::vector<Batch> lost;  // released without the lock
  {
    const MutexLock lock(mutex_);
    batch->number = next_++;
    batches_.push_back(batch);
    events_kept_ += std::ssize(batch->events);
    while (events_kept_ > kept_events_ && batches_.size() > 1) {
      events_kept_ -= std::ssize(batches_.front()->events);
      lost.push_back(std::move(batches_.front()));
      batches_.pop_front();
    }
  }
  if (on_batch_) on_batch_();
}

void KvEventLog::Restart() {
  assert(added_.events.empty());
  Add({.kind = KvEvent::Kind::kCleared});
  const MutexLock lock(mutex_);
  start_ = next_;
}

KvEventLog::Kept KvEventLog::kept() const {
  const MutexLock lock(mutex_);
  return {.start = start_, .first = next_ - batches_.size(), .next = next_};
}

KvEventLog::Batch KvEventLog::Read(uint64_t number) const {
  const MutexLock lock(mutex_);
  const uint64_t first = next_ - batches_.size();
  return number >= first && number < next_ ? batches_[number - first] : nullptr;
}

}  // namespace triptych
