// What a run of training is to go on from.
#ifndef TRIPTYCH_ENGINE_TOOLS_TRAINING_STATE_H_
#define TRIPTYCH_ENGINE_TOOLS_TRAINING_STATE_H_

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/decoder/weights.h"
#include "engine/tools/optimizer.h"

namespace triptych::tools {

// What was found after so many steps.
struct Measurement {
  int64_t steps = 0;
  double training_loss = 0;             // the mean over the steps since the one before
  std::optional<double> held_out_loss;  // of the weights as they would be stored
};

struct TrainingState {
  int64_t steps = 0;  // done
  std::vector<Parameter> parameters;
  std::vector<Measurement> curve;
  // The values after the steps of the curve's lowest held-out loss, or none without one.
  Weights best;
};

// What must be the same for a run to go on: names, as flags have them, and values.
using RunKey = std::vector<std::pair<std::string, std::string>>;

// Replaces the file. Throws std::runtime_error.
void SaveTrainingState(const std::filesystem::path& file, const RunKey& key,
                       const TrainingState& state);

// Fills `state`, which has the parameters of a run of so many steps that is about to begin. Throws
// LoadError, with the state as it was or partly read, if the file is not the state of a run with
// this key that has steps left.
void LoadTrainingState(const std::filesystem::path& file, const RunKey& key, int64_t run_steps,
                       TrainingState& state);

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_TRAINING_STATE_H_
