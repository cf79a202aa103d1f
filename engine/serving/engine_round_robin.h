// Fair time sharing of one thread between engines.
#ifndef TRIPTYCH_ENGINE_SERVING_ENGINE_ROUND_ROBIN_H_
#define TRIPTYCH_ENGINE_SERVING_ENGINE_ROUND_ROBIN_H_

#include <cstddef>
#include <functional>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/serving/engine.h"

namespace triptych::serving {

// Steps several engines so that those with work get equal shares of time, whatever their steps
// cost. Runs posted tasks between steps. Post is thread-safe; one thread calls the rest.
class EngineRoundRobin {
 public:
  // The engines must outlive this. Post calls `wake`, on the posting thread, for the first task
  // since the last call of Turn or RunTasks.
  EngineRoundRobin(std::vector<Engine*> engines, std::function<void()> wake,
                   Engine::Clock clock = EngineClock::now);

  void Post(std::function<void()> task) TRIPTYCH_EXCLUDES(mutex_);
  // Runs the posted tasks in order, then one step of the engine that has used the least time. Every
  // engine publishes its statistics before and after the step. False if there was neither task nor
  // step: nothing changes until `wake`.
  bool Turn() TRIPTYCH_EXCLUDES(mutex_);
  // Runs only the posted tasks. False if there were none.
  bool RunTasks() TRIPTYCH_EXCLUDES(mutex_);

  bool idle() const;  // no engine has a live request

 private:
  struct Share {
    Engine* engine;
    PrefillThrottle::Duration used{0};  // time of its steps; idle time earns no credit
    bool active = false;
  };

  void Publish();
  // Steps the engine that has used the least time. False if no engine has work.
  bool Step();
  // The engine to step next; null if none has work.
  Share* Next();

  const std::function<void()> wake_;
  const Engine::Clock clock_;
  std::vector<Share> shares_;
  PrefillThrottle::Duration now_{0};  // `used` of the engine stepped last, before that step

  Mutex mutex_;
  std::vector<std::function<void()>> inbox_ TRIPTYCH_GUARDED_BY(mutex_);
};

}  // namespace triptych::serving

#endif  // TRIPTYCH_ENGINE_SERVING_ENGINE_ROUND_ROBIN_H_
