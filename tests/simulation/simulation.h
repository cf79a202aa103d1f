// Simulation of several engines in one thread, on fake models and a virtual clock, with invariants
// that are checked after every turn.
#ifndef TRIPTYCH_TESTS_SIMULATION_SIMULATION_H_
#define TRIPTYCH_TESTS_SIMULATION_SIMULATION_H_

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>

#include "tests/simulation/workload.h"

namespace triptych::simulation {

struct Violation {
  std::string invariant;
  std::string what;
};

// Counts of the simulated work.
struct Effort {
  int64_t turns = 0;
  int64_t steps = 0;
  int64_t requests = 0;
  int64_t tokens = 0;
  int64_t drafted = 0, accepted = 0;  // tokens
  int64_t preemptions = 0;
  int64_t evictions = 0;
  int64_t cached_prompt_tokens = 0;
  int64_t cancelled = 0;
  int64_t failed = 0;
  int64_t refused = 0;
};

// Runs the workload to its end, deterministically. Returns the first violated invariant, if any.
// Writes every event to `trace`, unless it is null.
std::optional<Violation> Simulate(const Workload& workload, Effort& effort, std::ostream* trace);

}  // namespace triptych::simulation

#endif  // TRIPTYCH_TESTS_SIMULATION_SIMULATION_H_
