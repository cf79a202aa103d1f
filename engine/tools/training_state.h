// Saved state of a run of training.
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

// Losses after a number of steps.
struct Measurement {
  int64_t steps = 0;
  double training_loss = 0;             // mean over the steps since the last measurement
  std::optional<double> held_out_loss;  // of the weights as stored
};

struct TrainingState {
  int64_t steps = 0;  // done
  std::vector<Parameter> parameters;
  std::vector<Measurement> curve;
  // The weights with the lowest held-out loss of the curve; empty without one.
  Weights best;
};

// Everything that a resumed run must have in common with the saved one: names of flags, and values.
using RunKey = std::vector<std::pair<std::string, std::string>>;

// Replaces the file. Throws std::runtime_error.
void SaveTrainingState(const std::filesystem::path& file, const RunKey& key,
                       const TrainingState& state);

// Reads into `state`, which has the initial parameters of a run of `run_steps` steps. Throws
// LoadError if the file is not the state of a run with this key and steps left; `state` may then be
// partly read.
void LoadTrainingState(const std::filesystem::path& file, const RunKey& key, int64_t run_steps,
                       TrainingState& state);

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_TRAINING_STATE_H_
