#include "server/core/stats/stats_collector.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <utility>

namespace triptych::server {

StatsCollector::StatsCollector(EngineThread& engines, Post answer_thread, Clock clock)
    : engines_(engines), answer_thread_(std::move(answer_thread)), clock_(std::move(clock)) {}

void StatsCollector::PostTask() {
  if (std::exchange(posted_, true)) return;
  engines_.Post([this] { AskEngines(); });
}

void StatsCollector::Ask(bool block_maps, StatsDone done) {
  const MutexLock lock(mutex_);
  stats_.push_back({block_maps, std::move(done)});
  PostTask();
}

bool StatsCollector::Ask(const SequenceListing& listing, ListingDone done) {
  const MutexLock lock(mutex_);
  auto asked = std::find_if(listings_.begin(), listings_.end(),
                            [&](const Asked& other) { return other.listing == listing; });
  if (asked == listings_.end()) {
    if (listings_.size() == kMaxListings) return false;
    asked = listings_.insert(listings_.end(), {.listing = listing, .done = {}});
  }
  asked->done.push_back(std::move(done));
  PostTask();
  return true;
}

StatsCollector::Snapshot StatsCollector::WithBlockMaps() {
  const serving::EngineClock::time_point now = clock_();
  const auto age = std::max<std::chrono::nanoseconds>(kBlockMapAge, kBlockMapPause * mapping_took_);
  if (mapped_ == nullptr || now - mapped_at_ >= age) {
    mapped_ =
        std::make_shared<const std::vector<ModelStats>>(engines_.Snapshot(/*block_maps=*/true));
    mapped_at_ = now;
    mapping_took_ = clock_() - now;
  }
  return mapped_;
}

void StatsCollector::AskEngines() {
  std::vector<StatsAsked> stats;
  std::vector<Asked> listings;
  {
    const MutexLock lock(mutex_);
    stats.swap(stats_);
    while (!listings_.empty() && listings.size() < kListingsPerStep) {
      listings.push_back(std::move(listings_.front()));
      listings_.pop_front();
    }
    posted_ = false;
    if (!listings_.empty()) PostTask();  // runs after the next step
  }
  const auto with_maps = [](const StatsAsked& one) { return one.block_maps; };
  const auto plain = std::partition(stats.begin(), stats.end(), with_maps);
  const auto answer = [this](auto begin, auto end, const Snapshot& snapshot) {
    answer_thread_([asked = std::vector<StatsAsked>(std::make_move_iterator(begin),
                                                    std::make_move_iterator(end)),
                    snapshot] {
      for (const StatsAsked& one : asked) one.done(*snapshot);
    });
  };
  if (plain != stats.begin()) answer(stats.begin(), plain, WithBlockMaps());
  if (plain != stats.end()) {
    answer(
        plain, stats.end(),
        std::make_shared<const std::vector<ModelStats>>(engines_.Snapshot(/*block_maps=*/false)));
  }
  for (Asked& asked : listings) {
    std::vector<LiveSequence> sequences = engines_.Sequences(asked.listing);
    answer_thread_([done = std::move(asked.done), sequences = std::move(sequences)] {
      for (const ListingDone& one : done) one(sequences);
    });
  }
}

bool SortAndCut(const SequenceListing& listing, std::vector<LiveSequence>& sequences) {
  std::sort(sequences.begin(), sequences.end(), [](const LiveSequence& a, const LiveSequence& b) {
    return a.stats.number < b.stats.number;
  });
  if (sequences.size() <= listing.limit) return false;
  sequences.resize(listing.limit);
  return true;
}

}  // namespace triptych::server
