// A thread for what neither the engines nor a transport should be held up by.
#ifndef TRIPTYCH_SERVER_CORE_WORKER_H_
#define TRIPTYCH_SERVER_CORE_WORKER_H_

#include <functional>
#include <thread>
#include <vector>

#include "engine/base/mutex.h"

namespace triptych::server {

// Runs what is posted, in order. What a task throws is logged. Thread-safe.
class Worker {
 public:
  Worker() : thread_([this] { Run(); }) {}
  // Runs what was posted so far, and ends the thread.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void Post(std::function<void()> task) TRIPTYCH_EXCLUDES(mutex_);

 private:
  void Run() TRIPTYCH_EXCLUDES(mutex_);

  Mutex mutex_;
  CondVar changed_;
  std::vector<std::function<void()>> inbox_ TRIPTYCH_GUARDED_BY(mutex_);
  bool stopping_ TRIPTYCH_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_WORKER_H_
