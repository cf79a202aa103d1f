// Random workload of a seed: shapes of the engines, and a list of events.
#ifndef TRIPTYCH_TESTS_SIMULATION_WORKLOAD_H_
#define TRIPTYCH_TESTS_SIMULATION_WORKLOAD_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/serving/engine.h"
#include "engine/serving/request.h"
#include "tests/simulation/cold_run.h"

namespace triptych::simulation {

// SplitMix64 (Steele, Lea and Flood 2014): the same numbers on every platform.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t operator()();
  // Uniform in [low, high].
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>((*this)() % static_cast<uint64_t>(high - low + 1));
  }
  bool OneIn(int64_t n) { return (*this)() % static_cast<uint64_t>(n) == 0; }
  template <typename T>
  const T& Among(const std::vector<T>& values) {
    return values[(*this)() % values.size()];
  }

 private:
  uint64_t state_;
};

struct EngineShape {
  ModelShape model;
  serving::EngineOptions options;  // the simulation makes the drafters
  int wrong_drafts = 0;            // of ten drafted tokens
  bool draft_model = false;        // of the model's shape, without expanded prompts
};

struct Event {
  enum class Kind {
    kSubmit,         // request
    kCancel,         // request number `about`
    kCancelAtToken,  // request number `about`, as soon as it has got `count` tokens
    kDeadline,       // request number `about` is cancelled `time` from now
    kFailStep,       // the engine's next step fails
    kSlowStep,       // the engine's next step takes `time` longer
    kClockJump,      // the clock advances by `time`
    kSwap,           // the engine drains, and one of `shape` replaces it
    kCancelAll,      // all requests of the engine are cancelled
  };
  enum class Failure { kBeforeRows, kAfterRows, kOutOfMemory, kNotFinite };

  Kind kind = Kind::kSubmit;
  int64_t round = 0;     // happens before this turn of the engines
  bool in_step = false;  // happens during that turn's step, if there is one
  int engine = 0;
  uint64_t about = 0;
  int64_t count = 0;
  std::chrono::nanoseconds time{0};  // kSubmit: time since the request's arrival
  Failure failure = Failure::kBeforeRows;
  serving::Request request;  // its id is its number as text
  EngineShape shape;
};

struct Workload {
  uint64_t seed = 0;
  std::vector<EngineShape> engines;
  std::chrono::nanoseconds step_time{0};  // minimum time of a step
  std::chrono::nanoseconds row_time{0};   // additional time per row
  std::vector<Event> events;              // in order of round
};

// Adds a real model to a shape. Its blocks, groups of layers and `expand_from` are the shape's.
using AddRealModel = void (*)(ModelShape& shape, Random& random);

// The same seed gives the same workload on every platform. `add_real_model` may be null.
Workload MakeWorkload(uint64_t seed, AddRealModel add_real_model);

std::string Describe(const EngineShape& shape);
std::string Describe(const Event& event);

}  // namespace triptych::simulation

#endif  // TRIPTYCH_TESTS_SIMULATION_WORKLOAD_H_
