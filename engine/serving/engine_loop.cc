#include "engine/serving/engine_loop.h"

#include <algorithm>
#include <utility>

#include "engine/backend/model_backend.h"

namespace triptych::serving {

EngineLoop::EngineLoop(std::vector<Engine*> engines,
                       std::function<void(const std::string&)> on_device_lost)
    : engines_(engines),
      on_device_lost_(std::move(on_device_lost)),
      turns_(std::move(engines),
             [this] {
               {
                 const MutexLock lock(mutex_);
                 awake_ = true;
               }
               changed_.NotifyAll();
             }),
      thread_([this] { Run(); }) {}

void EngineLoop::Stop() {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

bool EngineLoop::Drain(std::chrono::nanoseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  int drain = 0;
  {
    const MutexLock lock(mutex_);
    drain = ++drains_;
  }
  Post([this, drain] {
    for (Engine* engine : engines_) engine->StopAccepting();
    const MutexLock lock(mutex_);
    refusing_ = std::max(refusing_, drain);
  });
  {
    const MutexLock lock(mutex_);
    while (drained_ < drain && changed_.WaitUntil(mutex_, deadline)) {
    }
    if (drained_ >= drain) return true;
  }
  Post([this] {
    for (Engine* engine : engines_) engine->CancelAll();
  });
  return false;
}

bool EngineLoop::Wait(bool worked) {
  const bool idle = turns_.idle();
  bool drained = false;
  {
    const MutexLock lock(mutex_);
    drained = idle && drained_ < refusing_;
    if (drained) drained_ = refusing_;
  }
  if (drained) changed_.NotifyAll();
  const MutexLock lock(mutex_);
  while (!worked && !stopping_ && !awake_) changed_.Wait(mutex_);
  awake_ = false;
  return !stopping_;
}

bool EngineLoop::Turn() {
  try {
    return turns_.Turn();
  } catch (const DeviceLost& e) {
    for (Engine* engine : engines_) engine->FailAll(e.what());
    if (on_device_lost_) on_device_lost_(e.what());
    return true;
  }
}

void EngineLoop::Run() {
  bool worked = false;
  while (Wait(worked)) worked = Turn();
  while (turns_.RunTasks()) {
  }
  for (Engine* engine : engines_) engine->CancelAll();
}

}  // namespace triptych::serving
