// The thread that runs the engines. Torch-free.
#ifndef TRIPTYCH_ENGINE_SERVING_ENGINE_LOOP_H_
#define TRIPTYCH_ENGINE_SERVING_ENGINE_LOOP_H_

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/serving/engine_round_robin.h"

namespace triptych::serving {

// EngineRoundRobin on a thread of its own: posted tasks are how requests, cancellations and
// questions reach an engine. Thread-safe.
class EngineLoop {
 public:
  // The engines must outlive the loop. When the device of one is lost, all of them fail their
  // requests and refuse new ones, since they share the process; `on_device_lost` is then called
  // once on the loop's thread with the error.
  explicit EngineLoop(std::vector<Engine*> engines,
                      std::function<void(const std::string&)> on_device_lost = {});
  ~EngineLoop() { Stop(); }
  EngineLoop(const EngineLoop&) = delete;
  EngineLoop& operator=(const EngineLoop&) = delete;

  // Runs `task` on the loop's thread before the next step. Tasks run in the order they were posted
  // and must not block.
  void Post(std::function<void()> task) { turns_.Post(std::move(task)); }

  // Makes every engine refuse new requests, and waits until the live ones have ended. After
  // `timeout` those left are cancelled, and the result is false.
  bool Drain(std::chrono::nanoseconds timeout) TRIPTYCH_EXCLUDES(mutex_);

  // Runs the tasks posted so far, then cancels what is live and ends the thread. Tasks that are
  // posted later never run. Called by one thread at a time; harmless after the first call.
  void Stop() TRIPTYCH_EXCLUDES(mutex_);

 private:
  void Run() TRIPTYCH_EXCLUDES(mutex_);
  // A turn of the engines. True if anything was done.
  bool Turn();
  // Waits until there is something to do. False once the loop is to end.
  bool Wait(bool worked) TRIPTYCH_EXCLUDES(mutex_);

  const std::vector<Engine*> engines_;
  const std::function<void(const std::string&)> on_device_lost_;
  Mutex mutex_;
  CondVar changed_;
  bool awake_ TRIPTYCH_GUARDED_BY(mutex_) = false;  // a task was posted
  bool stopping_ TRIPTYCH_GUARDED_BY(mutex_) = false;
  // How many drains were asked for, how many of these have made the engines refuse, and how many
  // have then seen them without a live request.
  int drains_ TRIPTYCH_GUARDED_BY(mutex_) = 0;
  int refusing_ TRIPTYCH_GUARDED_BY(mutex_) = 0;
  int drained_ TRIPTYCH_GUARDED_BY(mutex_) = 0;
  EngineRoundRobin turns_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace triptych::serving

#endif  // TRIPTYCH_ENGINE_SERVING_ENGINE_LOOP_H_
