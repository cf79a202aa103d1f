// Thread that runs the engines.
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

// Runs an EngineRoundRobin on its own thread. Requests, cancellations and queries reach the engines
// as posted tasks. Thread-safe.
class EngineLoop {
 public:
  // The engines must outlive the loop. When the device of one engine is lost, all engines fail
  // their requests and reject new ones, since they share the process. `on_device_lost` is then
  // called once with the error, on the loop's thread.
  explicit EngineLoop(std::vector<Engine*> engines,
                      std::function<void(const std::string&)> on_device_lost = {});
  ~EngineLoop() { Stop(); }
  EngineLoop(const EngineLoop&) = delete;
  EngineLoop& operator=(const EngineLoop&) = delete;

  // Runs `task` on the loop's thread before the next step. Tasks run in the order of posting and
  // must not block.
  void Post(std::function<void()> task) { turns_.Post(std::move(task)); }

  // Makes every engine reject new requests, and waits until the live ones have ended. After
  // `timeout`, posts the cancellation of the rest and returns false.
  bool Drain(std::chrono::nanoseconds timeout) TRIPTYCH_EXCLUDES(mutex_);

  // Runs the tasks posted so far, cancels the live requests and joins the thread. Tasks that are
  // posted later never run. Called by one thread at a time; harmless after the first call.
  void Stop() TRIPTYCH_EXCLUDES(mutex_);

 private:
  void Run() TRIPTYCH_EXCLUDES(mutex_);
  // One turn of the engines. True if there was a task or a step.
  bool Turn();
  // Completes drains; unless the last turn `worked`, waits for a task. False once the loop must
  // end.
  bool Wait(bool worked) TRIPTYCH_EXCLUDES(mutex_);

  const std::vector<Engine*> engines_;
  const std::function<void(const std::string&)> on_device_lost_;
  Mutex mutex_;
  CondVar changed_;
  bool awake_ TRIPTYCH_GUARDED_BY(mutex_) = false;  // a task was posted
  bool stopping_ TRIPTYCH_GUARDED_BY(mutex_) = false;
  // Number of drains requested; of these, those after which the engines reject requests; of these,
  // those after which no request was live.
  int drains_ TRIPTYCH_GUARDED_BY(mutex_) = 0;
  int refusing_ TRIPTYCH_GUARDED_BY(mutex_) = 0;
  int drained_ TRIPTYCH_GUARDED_BY(mutex_) = 0;
  EngineRoundRobin turns_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace triptych::serving

#endif  // TRIPTYCH_ENGINE_SERVING_ENGINE_LOOP_H_
