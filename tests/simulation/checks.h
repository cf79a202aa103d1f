// What must hold of an engine between its steps.
#ifndef TRIPTYCH_TESTS_SIMULATION_CHECKS_H_
#define TRIPTYCH_TESTS_SIMULATION_CHECKS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/serving/engine.h"
#include "tests/support/fake_model.h"

namespace triptych::simulation {

// Is told an invariant that does not hold, and what was found.
using Report = std::function<void(const char* invariant, const std::string& what)>;

// Of one engine. Keeps its buffers.
class EngineChecks {
 public:
  // Both must outlive this.
  EngineChecks(const serving::Engine& engine, const FakeModel& model)
      : engine_(engine), model_(model) {}

  // The pool's books, the tables, the rows in the cache and what is reported agree.
  void Check(const Report& report);
  // What a step may compute: positions that come next, in blocks that are the sequence's own.
  void CheckStep(const StepInput& step, int64_t max_batch_tokens, int64_t max_running,
                 const Report& report) const;

 private:
  void CheckTables(const Report& report);
  void CheckBlocks(const Report& report);
  void CheckReports(const Report& report);
  void CheckRows(const serving::Sequence& sequence, const Report& report) const;

  const serving::Engine& engine_;
  const FakeModel& model_;
  int64_t peak_allocated_ = 0;
  // Of the latest check.
  std::vector<const serving::Sequence*> sequences_;
  std::vector<int32_t> holds_;  // of each block, counted in the tables
  std::vector<int64_t> rows_;   // of each block, written by those that hold it
  std::vector<bool> ids_;       // of the prefix cache: listed
  int64_t running_ = 0;
};

}  // namespace triptych::simulation

#endif  // TRIPTYCH_TESTS_SIMULATION_CHECKS_H_
