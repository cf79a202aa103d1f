// Answers many questions about the engines at a bounded cost for their thread.
#ifndef TRIPTYCH_SERVER_CORE_STATS_STATS_COLLECTOR_H_
#define TRIPTYCH_SERVER_CORE_STATS_STATS_COLLECTOR_H_

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/serving/request.h"
#include "server/core/engine_thread.h"
#include "server/core/stats/model_stats.h"

namespace triptych::server {

// Asks the engines on behalf of all callers. The cost for the engines' thread does not grow with
// their number: one task at a time is posted there, which runs between two steps and answers every
// caller that asked before it ran. Answers are called on another thread. Thread-safe.
class StatsCollector {
 public:
  using Post = std::function<void(std::function<void()>)>;

  // How many different listings are answered between two steps; the others wait for the next one.
  static constexpr size_t kListingsPerStep = 4;
  // How many different ones may wait.
  static constexpr size_t kMaxListings = 256;

  // Since block maps look at every block, who asks for them gets the last ones, with the statistics
  // of their moment, until these are so old, and so many times what it took to make them.
  static constexpr std::chrono::milliseconds kBlockMapAge{200};
  static constexpr int kBlockMapPause = 50;

  using Clock = std::function<serving::EngineClock::time_point()>;

  // `answer_thread` runs its tasks in order. Both run tasks only while the collector lives.
  StatsCollector(EngineThread& engines, Post answer_thread,
                 Clock clock = serving::EngineClock::now);

  void Ask(bool block_maps, std::function<void(const std::vector<ModelStats>&)> done)
      TRIPTYCH_EXCLUDES(mutex_);
  // False if too many wait; then `done` is not called.
  bool Ask(const SequenceListing& listing,
           std::function<void(const std::vector<LiveSequence>&)> done) TRIPTYCH_EXCLUDES(mutex_);

 private:
  using StatsDone = std::function<void(const std::vector<ModelStats>&)>;
  using ListingDone = std::function<void(const std::vector<LiveSequence>&)>;
  struct Asked {
    SequenceListing listing;
    std::vector<ListingDone> done;
  };

  struct StatsAsked {
    bool block_maps;
    StatsDone done;
  };
  using Snapshot = std::shared_ptr<const std::vector<ModelStats>>;

  // On the engines' thread.
  Snapshot WithBlockMaps();
  // Posts the task unless it is.
  void PostTask() TRIPTYCH_REQUIRES(mutex_);
  void AskEngines() TRIPTYCH_EXCLUDES(mutex_);

  EngineThread& engines_;
  const Post answer_thread_;
  const Clock clock_;
  // The last one with block maps, when it was taken, and how long that took. The engines' thread's.
  Snapshot mapped_;
  serving::EngineClock::time_point mapped_at_;
  std::chrono::nanoseconds mapping_took_{0};
  Mutex mutex_;
  bool posted_ TRIPTYCH_GUARDED_BY(mutex_) = false;
  std::vector<StatsAsked> stats_ TRIPTYCH_GUARDED_BY(mutex_);
  std::deque<Asked> listings_ TRIPTYCH_GUARDED_BY(mutex_);
};

// Puts them in order of arrival, and leaves out what is beyond the listing's limit. True if that
// was anything.
bool SortAndCut(const SequenceListing& listing, std::vector<LiveSequence>& sequences);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_STATS_STATS_COLLECTOR_H_
