// The thread that runs the engines. Torch-free.
#ifndef TRIPTYCH_ENGINE_SERVING_ENGINE_LOOP_H_
#define TRIPTYCH_ENGINE_SERVING_ENGINE_LOOP_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/serving/engine.h"

namespace triptych {

// Steps several engines in turn on one thread, and runs posted tasks on it between steps: that is
// how requests, cancellations and questions reach an engine. Thread-safe.
class EngineLoop {
 public:
  // The engines must outlive the loop.
  explicit EngineLoop(std::vector<Engine*> engines);
  // Runs the tasks posted so far, then cancels what is live and ends the thread.
  ~EngineLoop();
  EngineLoop(const EngineLoop&) = delete;
  EngineLoop& operator=(const EngineLoop&) = delete;

  // Runs `task` on the loop's thread before the next step. Tasks run in the order they were posted
  // and must not block.
  void Post(std::function<void()> task);

  // Makes every engine refuse new requests, and waits until the live ones have ended. After
  // `timeout` those left are cancelled, and the result is false.
  bool Drain(std::chrono::nanoseconds timeout);

 private:
  void Run();

  const std::vector<Engine*> engines_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::function<void()>> inbox_;  // guarded by mutex_
  bool stopping_ = false;                     // guarded by mutex_
  bool idle_ = false;                         // guarded by mutex_: nothing live, inbox empty
  std::thread thread_;                        // last: it uses all of the above
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_SERVING_ENGINE_LOOP_H_
