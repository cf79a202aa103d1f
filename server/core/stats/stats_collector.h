// Snapshots of the models' statistics, taken between two steps.
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

// Collects statistics for all callers at a cost to the engines' thread that does not grow with
// their number: at most one task is posted there, which runs between two steps and serves every
// request made before it ran. Callbacks run on the answer thread. Thread-safe.
class StatsCollector {
 public:
  using Post = std::function<void(std::function<void()>)>;

  // Number of different listings answered between two steps; further ones wait for the next task.
  static constexpr size_t kListingsPerStep = 4;
  // Number of different listings that may wait.
  static constexpr size_t kMaxListings = 256;

  // A block map scans the whole pool, so a snapshot with maps is reused until it is kBlockMapAge
  // old and kBlockMapPause times its own build time has passed.
  static constexpr std::chrono::milliseconds kBlockMapAge{200};
  static constexpr int kBlockMapPause = 50;

  using Clock = std::function<serving::EngineClock::time_point()>;

  // `answer_thread` runs its tasks in order. Both run tasks only while the collector lives.
  StatsCollector(EngineThread& engines, Post answer_thread,
                 Clock clock = serving::EngineClock::now);

  // Calls `done` with statistics of every model.
  void Ask(bool block_maps, std::function<void(const std::vector<ModelStats>&)> done)
      TRIPTYCH_EXCLUDES(mutex_);
  // Calls `done` with the sequences of `listing`. False, without calling it, if kMaxListings
  // different listings wait.
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
  // Posts the task unless it is posted already.
  void PostTask() TRIPTYCH_REQUIRES(mutex_);
  void AskEngines() TRIPTYCH_EXCLUDES(mutex_);

  EngineThread& engines_;
  const Post answer_thread_;
  const Clock clock_;
  // The last snapshot with block maps, when it was taken, and its build time. Engines' thread only.
  Snapshot mapped_;
  serving::EngineClock::time_point mapped_at_;
  std::chrono::nanoseconds mapping_took_{0};
  Mutex mutex_;
  bool posted_ TRIPTYCH_GUARDED_BY(mutex_) = false;
  std::vector<StatsAsked> stats_ TRIPTYCH_GUARDED_BY(mutex_);
  std::deque<Asked> listings_ TRIPTYCH_GUARDED_BY(mutex_);
};

// Sorts sequences by arrival and cuts them to the listing's limit. True if some were cut.
bool SortAndCut(const SequenceListing& listing, std::vector<LiveSequence>& sequences);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_STATS_STATS_COLLECTOR_H_
