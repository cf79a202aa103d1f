// Invariants of an engine between its steps.
#ifndef TRIPTYCH_TESTS_SIMULATION_CHECKS_H_
#define TRIPTYCH_TESTS_SIMULATION_CHECKS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/kv_cache/kv_event_log.h"
#include "engine/serving/engine.h"
#include "tests/support/fake_model.h"

namespace triptych::simulation {

// Receives a violated invariant and the details.
using Report = std::function<void(const char* invariant, const std::string& what)>;

// Checks of one engine. Reuses its buffers.
class EngineChecks {
 public:
  // Both must outlive this.
  EngineChecks(const serving::Engine& engine, const FakeModel& model)
      : engine_(engine), model_(model) {}

  // Pool, block tables, rows in the cache and reported statistics must agree.
  void Check(const Report& report);
  // A step must compute each sequence's next positions, in blocks that no other sequence uses.
  void CheckStep(const StepInput& step, int64_t max_batch_tokens, int64_t max_running,
                 const Report& report) const;

 private:
  void CheckTables(const Report& report);
  void CheckBlocks(const Report& report);
  void CheckReports(const Report& report);
  // Replays the new events, and compares the result with the prefix cache.
  void CheckEvents(const Report& report);
  void Replay(const KvEventBatch& batch, const Report& report);
  void CheckRows(const serving::Sequence& sequence, const Report& report) const;

  const serving::Engine& engine_;
  const FakeModel& model_;
  int64_t peak_allocated_ = 0;
  // State of the latest check.
  std::vector<const serving::Sequence*> sequences_;
  std::vector<int32_t> holds_;  // by block: references, counted in the tables
  std::vector<int64_t> rows_;   // by block: rows written by its sequences
  std::vector<bool> ids_;       // by id of the prefix cache: registered
  int64_t running_ = 0;
  // The blocks that the events say can be found, by name.
  struct Known {
    std::optional<uint64_t> parent;
    std::vector<int32_t> tokens;
  };
  std::map<uint64_t, Known> known_;
  uint64_t next_batch_ = 1;
};

}  // namespace triptych::simulation

#endif  // TRIPTYCH_TESTS_SIMULATION_CHECKS_H_
