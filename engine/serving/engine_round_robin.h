// Whose turn it is among the engines of one thread. Torch-free.
#ifndef TRIPTYCH_ENGINE_SERVING_ENGINE_ROUND_ROBIN_H_
#define TRIPTYCH_ENGINE_SERVING_ENGINE_ROUND_ROBIN_H_

#include <cstddef>
#include <functional>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/serving/engine.h"

namespace triptych::serving {

// Steps several engines so that those with work get equal shares of time, whatever their steps
// cost, and runs posted tasks between the steps. Post is thread-safe; one thread calls the rest.
class EngineRoundRobin {
 public:
  // The engines must outlive this. `wake` is called, on the posting thread, when there is a task
  // after Turn has found none.
  EngineRoundRobin(std::vector<Engine*> engines, std::function<void()> wake,
                   Engine::Clock clock = EngineClock::now);

  void Post(std::function<void()> task) TRIPTYCH_EXCLUDES(mutex_);
  // Runs the tasks that were posted, in their order, and then one step of the engine that has had
  // the least time; every engine publishes before and after the step. False if there was neither
  // task nor step: nothing changes until `wake`.
  bool Turn() TRIPTYCH_EXCLUDES(mutex_);
  // Runs the posted tasks alone. False if there were none.
  bool RunTasks() TRIPTYCH_EXCLUDES(mutex_);

  bool idle() const;  // no engine has a live request

 private:
  struct Share {
    Engine* engine;
    PrefillThrottle::Duration used{
        0};  // of time, since the beginning; nobody's lags while it has no work
    bool active = false;
  };

  void Publish();
  // One step of the engine that has had the least time. False if there was none.
  bool Step();
  // The engine that steps next; null if none has work.
  Share* Next();

  const std::function<void()> wake_;
  const Engine::Clock clock_;
  std::vector<Share> shares_;
  PrefillThrottle::Duration now_{0};  // what the engine that stepped last had used before

  Mutex mutex_;
  std::vector<std::function<void()>> inbox_ TRIPTYCH_GUARDED_BY(mutex_);
};

}  // namespace triptych::serving

#endif  // TRIPTYCH_ENGINE_SERVING_ENGINE_ROUND_ROBIN_H_
