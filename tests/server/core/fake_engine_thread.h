// Fakes of an engine and of a transport, for tests of calls and statistics.
#ifndef TRIPTYCH_TESTS_SERVER_CORE_FAKE_ENGINE_THREAD_H_
#define TRIPTYCH_TESTS_SERVER_CORE_FAKE_ENGINE_THREAD_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/mutex.h"
#include "server/core/engine_thread.h"
#include "server/core/requests/call.h"

namespace triptych::server {

// Keeps what it is given; the test calls the sinks and runs the tasks. Only Cancel and `cancels`
// may be used by several threads.
class FakeEngineThread final : public EngineThread {
 public:
  void Submit(size_t /*model*/, serving::Request request,
              std::shared_ptr<serving::RequestSink> sink) override {
    if (submitted.size() == room) throw std::bad_alloc();
    submitted.push_back(std::move(request));
    sinks.push_back(std::move(sink));
  }
  void Cancel(size_t /*model*/, const std::string& id) override {
    const MutexLock lock(mutex_);
    cancelled_.push_back(id);
    ++cancels;
  }
  void Post(std::function<void()> task) override { tasks.push_back(std::move(task)); }
  // The numbers are counts of calls.
  std::vector<ModelStats> Snapshot(bool block_maps) override {
    ++snapshots;
    if (block_maps && on_maps) on_maps();
    ModelStats stats{.model = std::to_string(snapshots), .kv_cache = {}, .block_map = nullptr};
    if (block_maps) stats.block_map = std::make_shared<const serving::BlockMap>();
    return {stats};
  }
  std::vector<LiveSequence> Sequences(const SequenceListing& listing) override {
    listings.push_back(listing.after);
    return {{.model = std::to_string(listing.after), .stats = {}}};
  }

  // Ids, in the order of the calls.
  std::vector<std::string> cancelled() const {
    const MutexLock lock(mutex_);
    return cancelled_;
  }
  // The sink of the last request.
  serving::RequestSink& sink() const { return *sinks.back(); }

  size_t room = std::numeric_limits<size_t>::max();  // for requests, in memory
  std::vector<serving::Request> submitted;
  std::vector<std::shared_ptr<serving::RequestSink>> sinks;
  std::atomic<int> cancels = 0;

  std::vector<std::function<void()>> tasks;
  std::function<void()> on_maps;  // called for a snapshot with block maps
  int snapshots = 0;
  std::vector<uint64_t> listings;

 private:
  mutable Mutex mutex_;
  std::vector<std::string> cancelled_ TRIPTYCH_GUARDED_BY(mutex_);
};

class CountingListener final : public CallListener {
 public:
  void OnReady() override { ++calls; }
  std::atomic<int> calls = 0;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_TESTS_SERVER_CORE_FAKE_ENGINE_THREAD_H_
