#include "server/core/worker.h"

#include <exception>
#include <utility>

#include "server/core/log.h"

namespace triptych::server {

Worker::~Worker() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

void Worker::Post(std::function<void()> task) {
  {
    const MutexLock lock(mutex_);
    inbox_.push_back(std::move(task));
  }
  changed_.NotifyAll();
}

void Worker::Run() {
  while (true) {
    std::vector<std::function<void()>> tasks;
    {
      const MutexLock lock(mutex_);
      while (inbox_.empty() && !stopping_) changed_.Wait(mutex_);
      if (inbox_.empty()) return;
      tasks.swap(inbox_);
    }
    for (const auto& task : tasks) {
      try {
        task();
      } catch (const std::exception& e) {  // such as std::bad_alloc
        LogError("a task failed: {}", e.what());
      }
    }
  }
}

}  // namespace triptych::server
