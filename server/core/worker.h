// Worker thread for tasks that must not delay the engines or a transport.
#ifndef TRIPTYCH_SERVER_CORE_WORKER_H_
#define TRIPTYCH_SERVER_CORE_WORKER_H_

#include <functional>
#include <thread>
#include <vector>

#include "engine/base/mutex.h"

namespace triptych::server {

// Runs posted tasks in order. Logs the exceptions that they throw. Thread-safe.
class Worker {
 public:
  Worker() : thread_([this] { Run(); }) {}
  // Runs the tasks posted so far and ends the thread.
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
  std::thread thread_;  // last: uses the members above
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_WORKER_H_
