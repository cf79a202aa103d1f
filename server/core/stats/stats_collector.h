// What the models of a host hold at one moment, between two steps.
#ifndef TRIPTYCH_SERVER_CORE_STATS_STATS_COLLECTOR_H_
#define TRIPTYCH_SERVER_CORE_STATS_STATS_COLLECTOR_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/serving/block_map.h"
#include "engine/serving/request.h"
#include "engine/serving/stats.h"

namespace triptych::server {

struct ModelStats {
  std::string model;
  serving::KvCacheStats kv_cache;
  std::shared_ptr<const serving::BlockMap>
      block_map;  // of the same moment; null if none was asked for
  // Of the map, as who asks may see them: those are told, and not the map's own.
  std::shared_ptr<const std::vector<serving::SequenceStats>> holders = {};
};

struct RegistryStats {
  std::vector<ModelStats> models;
  // The sums over `models`.
  int64_t pool_bytes = 0;
  int64_t used_bytes = 0;
  int64_t allocated_bytes = 0;
  int64_t evictable_bytes = 0;
  int64_t free_bytes = 0;

  void Add(ModelStats stats);
};

struct LiveSequence {
  std::string model;
  serving::SequenceStats stats;
};

// The sequences of some models that a page is made of.
struct SequenceListing {
  std::vector<size_t> models;  // of ModelRegistry::models()
  uint64_t after = 0;          // only higher numbers
  size_t limit = 0;
  std::optional<std::string> client;  // only this one's

  bool operator==(const SequenceListing&) const = default;
};

// Asks the engines on behalf of many, at a cost for their thread that does not grow with how many
// ask: one task is posted there at a time, which runs between two steps, and answers everybody who
// asked before it ran. Answers are called on another thread. Thread-safe.
class StatsCollector {
 public:
  using Post = std::function<void(std::function<void()>)>;

  // What the engines say, asked on their thread.
  class Engines {
   public:
    virtual ~Engines() = default;
    // Of every model.
    virtual std::vector<ModelStats> Stats(bool block_maps) = 0;
    // In any order.
    virtual std::vector<LiveSequence> Sequences(const SequenceListing& listing) = 0;
  };

  // How many different listings are answered between two steps; the others wait for the next one.
  static constexpr size_t kListingsPerStep = 4;
  // How many different ones may wait.
  static constexpr size_t kMaxListings = 256;

  // Since block maps look at every block, who asks for them gets the last ones, with the statistics
  // of their moment, until these are so old, and so many times what it took to make them.
  static constexpr std::chrono::milliseconds kBlockMapAge{200};
  static constexpr int kBlockMapPause = 50;

  using Clock = std::function<serving::EngineClock::time_point()>;

  // `engines_thread` and `answer_thread` run what they are given, in order, while the desk lives.
  StatsCollector(Engines& engines, Post engines_thread, Post answer_thread,
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

  Engines& engines_;
  const Post engines_thread_;
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
