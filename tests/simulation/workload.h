// What a seed asks of the engines: their shapes, and a list of events.
#ifndef TRIPTYCH_TESTS_SIMULATION_WORKLOAD_H_
#define TRIPTYCH_TESTS_SIMULATION_WORKLOAD_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/serving/engine.h"
#include "engine/serving/request.h"
#include "tests/support/fake_model.h"

namespace triptych::simulation {

// SplitMix64 (Steele, Lea and Flood 2014): the same numbers everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t operator()();
  // From low to high.
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
  FakeModel::Shape model;
  serving::EngineOptions options;
};

struct Event {
  enum class Kind {
    kSubmit,         // request
    kCancel,         // request number `about`
    kCancelAtToken,  // request number `about`, as soon as it has got `count` tokens
    kDeadline,       // request number `about` is cancelled `time` from now
    kFailStep,       // the engine's next step fails
    kSlowStep,       // the engine's next step takes `time` longer
    kClockJump,      // the clock goes on by `time`
    kSwap,           // the engine drains, and another one, of `shape`, takes its place
    kCancelAll,      // of the engine
  };
  enum class Failure { kBeforeRows, kAfterRows, kOutOfMemory, kNotFinite };

  Kind kind = Kind::kSubmit;
  int64_t round = 0;     // before which turn of the engines it happens
  bool in_step = false;  // it happens while that turn's step is computed, if there is one
  int engine = 0;
  uint64_t about = 0;
  int64_t count = 0;
  std::chrono::nanoseconds time{0};  // kSubmit: since the request arrived
  Failure failure = Failure::kBeforeRows;
  serving::Request request;  // its id is its number as text
  EngineShape shape;
};

struct Workload {
  uint64_t seed = 0;
  std::vector<EngineShape> engines;
  std::chrono::nanoseconds step_time{0};  // of a step, at least
  std::chrono::nanoseconds row_time{0};   // of each row in it
  std::vector<Event> events;              // by round
};

// The same seed gives the same workload, everywhere.
Workload MakeWorkload(uint64_t seed);

std::string Describe(const EngineShape& shape);
std::string Describe(const Event& event);

}  // namespace triptych::simulation

#endif  // TRIPTYCH_TESTS_SIMULATION_WORKLOAD_H_
