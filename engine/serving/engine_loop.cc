#include "engine/serving/engine_loop.h"

#include <utility>

#include "engine/serving/engine.h"

namespace triptych {

EngineLoop::EngineLoop(std::vector<Engine*> engines)
    : engines_(std::move(engines)), thread_([this] { Run(); }) {}

EngineLoop::~EngineLoop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

void EngineLoop::Post(std::function<void()> task) {
  {
    const MutexLock lock(mutex_);
    inbox_.push_back(std::move(task));
    idle_ = false;
  }
  changed_.NotifyAll();
}

bool EngineLoop::Drain(std::chrono::nanoseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  Post([this] {
    for (Engine* engine : engines_) engine->StopAccepting();
  });
  {
    const MutexLock lock(mutex_);
    while (!idle_ && changed_.WaitUntil(mutex_, deadline)) {
    }
    if (idle_) return true;
  }
  Post([this] {
    for (Engine* engine : engines_) engine->CancelAll();
  });
  return false;
}

void EngineLoop::Run() {
  bool worked = false;
  while (true) {
    std::vector<std::function<void()>> tasks;
    bool stop;
    {
      const MutexLock lock(mutex_);
      if (!worked && inbox_.empty()) {
        idle_ = true;
        changed_.NotifyAll();
        while (!stopping_ && inbox_.empty()) changed_.Wait(mutex_);
      }
      tasks.swap(inbox_);
      stop = stopping_;
    }
    for (const auto& task : tasks) task();
    if (stop) break;
    worked = false;
    for (Engine* engine : engines_) worked = engine->Step() || worked;
  }
  for (Engine* engine : engines_) engine->CancelAll();
}

}  // namespace triptych
