#include "engine/serving/engine_loop.h"

#include <utility>

namespace triptych {

EngineLoop::EngineLoop(std::vector<Engine*> engines)
    : engines_(std::move(engines)), thread_([this] { Run(); }) {}

EngineLoop::~EngineLoop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void EngineLoop::Post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    inbox_.push_back(std::move(task));
    idle_ = false;
  }
  changed_.notify_all();
}

bool EngineLoop::Drain(std::chrono::nanoseconds timeout) {
  Post([this] {
    for (Engine* engine : engines_) engine->StopAccepting();
  });
  {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, timeout, [this] { return idle_; })) return true;
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
      std::unique_lock lock(mutex_);
      if (!worked && inbox_.empty()) {
        idle_ = true;
        changed_.notify_all();
        changed_.wait(lock, [this] { return stopping_ || !inbox_.empty(); });
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
