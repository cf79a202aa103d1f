#include "engine/serving/engine_round_robin.h"

#include <algorithm>
#include <utility>

namespace triptych::serving {

EngineRoundRobin::EngineRoundRobin(std::vector<Engine*> engines, std::function<void()> wake,
                                   Engine::Clock clock)
    : wake_(std::move(wake)), clock_(std::move(clock)) {
  for (Engine* engine : engines) shares_.push_back({.engine = engine});
}

void EngineRoundRobin::Post(std::function<void()> task) {
  bool first = false;
  {
    const MutexLock lock(mutex_);
    first = inbox_.empty();
    inbox_.push_back(std::move(task));
  }
  if (first) wake_();
}

bool EngineRoundRobin::RunTasks() {
  std::vector<std::function<void()>> tasks;
  {
    const MutexLock lock(mutex_);
    tasks.swap(inbox_);
  }
  for (const auto& task : tasks) task();
  return !tasks.empty();
}

bool EngineRoundRobin::Turn() {
  const bool ran = RunTasks();
  Publish();  // the step may take a long time
  const bool stepped = Step();
  Publish();
  return ran || stepped;
}

void EngineRoundRobin::Publish() {
  for (const Share& share : shares_) share.engine->Publish();
}

bool EngineRoundRobin::Step() {
  Share* const share = Next();
  if (share == nullptr) return false;
  // Prefill must not delay sequences that decode on other engines.
  PrefillThrottle::Duration others{0};
  for (const Share& other : shares_) {
    if (&other == share) continue;
    const PrefillThrottle::Duration step = other.engine->decode_step();
    if (step.count() > 0 && (others.count() == 0 || step < others)) others = step;
  }
  const auto start = clock_();
  share->engine->Step(others);
  now_ = share->used;
  share->used += clock_() - start;
  return true;
}

EngineRoundRobin::Share* EngineRoundRobin::Next() {
  Share* next = nullptr;
  for (Share& share : shares_) {
    const bool active = !share.engine->idle();
    // An engine gets no credit for the time that others used while it was idle.
    if (active && !share.active) share.used = std::max(share.used, now_);
    share.active = active;
    if (active && (next == nullptr || share.used < next->used)) next = &share;
  }
  return next;
}

bool EngineRoundRobin::idle() const {
  return std::all_of(shares_.begin(), shares_.end(),
                     [](const Share& share) { return share.engine->idle(); });
}

}  // namespace triptych::serving
