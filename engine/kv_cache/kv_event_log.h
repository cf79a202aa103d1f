// Events of a prefix cache, for routers that send a request to the server that holds its prefix.
#ifndef TRIPTYCH_ENGINE_KV_CACHE_KV_EVENT_LOG_H_
#define TRIPTYCH_ENGINE_KV_CACHE_KV_EVENT_LOG_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/base/mutex.h"

namespace triptych {

// Numbers name blocks (PrefixCache::NameOf).
struct KvEvent {
  enum class Kind {
    kStored,   // the block can be found
    kRemoved,  // it lost its rows
    kCleared,  // no block can be found any more; those that can are stored next
  };
  Kind kind = Kind::kCleared;
  uint64_t block = 0;
  std::optional<uint64_t> parent = {};  // kStored: the block before it; absent: it is the first
};

struct KvEventBatch {
  uint64_t number = 0;
  uint64_t first_event = 0;                    // number of its first event, from 1
  std::chrono::steady_clock::time_point time;  // of Publish
  std::vector<KvEvent> events;                 // in order; not empty
  std::vector<int32_t> tokens;                 // of its kStored events, [stored, block_positions]
};

// Successive events that routers get as one: stored blocks, each after the one before it, or
// removed ones. Views its batch.
struct KvEventRun {
  uint64_t first_event = 0;         // number of its first event
  std::span<const KvEvent> events;  // not empty
  std::span<const int32_t> tokens;  // of stored blocks
};
std::vector<KvEventRun> Runs(const KvEventBatch& batch, int64_t block_positions);

// Keeps the latest batches, up to a bound on their events. A reader that is slower than that loses
// the oldest, and sees it by their numbers: a batch's is one more than that of the batch before.
//
// Replaying the batches from start() gives the set of blocks that can be found. One thread writes:
// the functions up to OnBatch. Any thread calls the rest. No function waits for a reader.
class KvEventLog {
 public:
  using Batch = std::shared_ptr<const KvEventBatch>;

  // The most events of a batch, except that of a step, which is one batch.
  static constexpr int64_t kMaxEvents = 4096;

  // `first`: the number of the first batch, at least 1.
  KvEventLog(int64_t block_positions, int64_t kept_events, uint64_t first);
  KvEventLog(const KvEventLog&) = delete;
  KvEventLog& operator=(const KvEventLog&) = delete;

  void Add(const KvEvent& event, std::span<const int32_t> tokens = {});
  // Publishes the added events as one batch, if there are any. Takes memory for the batch then, as
  // the prefix cache does for each block, and none otherwise.
  void Publish(std::chrono::steady_clock::time_point now) TRIPTYCH_EXCLUDES(mutex_);
  // Number of events added since the last Publish.
  int64_t added() const { return std::ssize(added_.events); }
  // The next batch begins with kCleared, and the caller adds every block that can be found.
  // REQUIRES: no event was added since the last Publish.
  void Restart() TRIPTYCH_EXCLUDES(mutex_);

  // Called by the writing thread after each batch; must not block. Set before the first.
  void OnBatch(std::function<void()> on_batch) { on_batch_ = std::move(on_batch); }

  struct Kept {
    uint64_t start = 0;  // replay from here
    uint64_t first = 0;  // the oldest batch
    uint64_t next = 0;   // the one that comes next
    bool complete() const { return start >= first; }
  };
  Kept kept() const TRIPTYCH_EXCLUDES(mutex_);
  // The batch of that number; null if it is not kept.
  Batch Read(uint64_t number) const TRIPTYCH_EXCLUDES(mutex_);
  int64_t block_positions() const { return block_positions_; }

 private:
  const int64_t block_positions_;
  const int64_t kept_events_;
  std::function<void()> on_batch_;
  KvEventBatch added_;  // since the last Publish
  uint64_t events_ = 0;
  mutable Mutex mutex_;
  std::deque<Batch> batches_ TRIPTYCH_GUARDED_BY(mutex_);
  int64_t events_kept_ TRIPTYCH_GUARDED_BY(mutex_) = 0;
  uint64_t start_ TRIPTYCH_GUARDED_BY(mutex_);
  uint64_t next_ TRIPTYCH_GUARDED_BY(mutex_);
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_KV_CACHE_KV_EVENT_LOG_H_
