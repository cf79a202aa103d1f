#include "server/core/engine_thread.h"

#include <exception>

#include "server/core/log.h"

namespace triptych::server {
namespace {

std::vector<serving::Engine*> Pointers(
    const std::vector<std::unique_ptr<serving::Engine>>& engines) {
  std::vector<serving::Engine*> pointers;
  pointers.reserve(engines.size());
  for (const auto& engine : engines) pointers.push_back(engine.get());
  return pointers;
}

}  // namespace

EngineLoopThread::EngineLoopThread(const ModelRegistry& models,
                                   std::vector<std::unique_ptr<serving::Engine>> engines,
                                   std::function<void(const std::string&)> on_device_lost)
    : models_(models),
      engines_(std::move(engines)),
      loop_(Pointers(engines_), std::move(on_device_lost)) {}

void EngineLoopThread::Submit(size_t model, serving::Request request,
                              std::shared_ptr<serving::RequestSink> sink) {
  loop_.Post([&engine = *engines_[model], request = std::move(request),
              sink = std::move(sink)]() mutable { engine.Submit(std::move(request), sink); });
}

void EngineLoopThread::Cancel(size_t model, const std::string& id) {
  try {
    loop_.Post([&engine = *engines_[model], id] { engine.Cancel(id); });
  } catch (const std::exception& e) {  // such as std::bad_alloc
    LogError("request {} is not cancelled: {}", id, e.what());
  }
}

void EngineLoopThread::OnKvEvents(size_t model, std::function<void()> on_batch) {
  if (kv_events(model) != nullptr) engines_[model]->OnKvEvents(std::move(on_batch));
}

void EngineLoopThread::RestartKvEvents(size_t model, std::function<void()> done) {
  loop_.Post([&engine = *engines_[model], done = std::move(done)] {
    engine.RestartKvEvents();
    done();
  });
}

std::vector<ModelStats> EngineLoopThread::Snapshot(bool block_maps) {
  std::vector<ModelStats> stats;
  for (size_t i = 0; i < engines_.size(); ++i) {
    const serving::Engine& engine = *engines_[i];
    stats.push_back(
        {.model = models_.models()[i].name, .kv_cache = engine.Stats(), .block_map = nullptr});
    if (block_maps) {
      stats.back().block_map = std::make_shared<const serving::BlockMap>(engine.MapBlocks());
    }
  }
  return stats;
}

std::vector<LiveSequence> EngineLoopThread::Sequences(const SequenceListing& listing) {
  const serving::SequenceQuery query = {
      .after = listing.after, .limit = listing.limit + 1, .client = listing.client};
  std::vector<LiveSequence> sequences;
  for (const size_t i : listing.models) {
    for (serving::SequenceStats& one : engines_[i]->Sequences(query)) {
      sequences.push_back({models_.models()[i].name, std::move(one)});
    }
  }
  return sequences;
}

}  // namespace triptych::server
