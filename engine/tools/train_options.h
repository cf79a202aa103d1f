// Options of training.
#ifndef TRIPTYCH_ENGINE_TOOLS_TRAIN_OPTIONS_H_
#define TRIPTYCH_ENGINE_TOOLS_TRAIN_OPTIONS_H_

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/bfloat16.h"
#include "engine/base/formats.h"

namespace triptych::tools {

struct TrainOptions {
  // Exactly one: the config.json of a new model, or the checkpoint of a model to train further.
  std::filesystem::path config = {};
  std::filesystem::path from = {};
  std::filesystem::path text = {};
  std::filesystem::path output = {};  // directory
  // Held-out fraction of the text's end; absent: as Corpus has it for the model.
  std::optional<double> held_out = {};
  int64_t steps = 2000;
  int64_t batch_size = 16;        // windows per step
  int64_t window = 0;             // tokens of a window; 0: the full context
  double learning_rate = 1.5e-3;  // peak, as LearningRate has it
  int64_t warmup_steps = 100;
  double weight_decay = 0.1;  // of matrices
  double dropout = 0.1;       // of Decoder::Forward
  double clip = 1.0;          // maximum norm of the gradient
  uint64_t seed = 1;
  // Steps between measurements of the held-out loss, each with a state to resume from. The last
  // step is measured too, and the best weights are kept. The measured windows are no longer than
  // `window`: positions beyond it may be untrained.
  int64_t save_every = 250;
  std::optional<ComputeType> compute = {};  // of matrix products; DefaultTrainingType() if absent
  // Checkpoints to distil from, and their share of the loss (Teachers).
  std::vector<std::filesystem::path> teachers = {};
  double teacher_weight = 0.5;
  std::string command = {};  // command line for the card
};

// Default format of matrix products in training: bfloat16 if the processor multiplies it, else
// float32.
inline ComputeType DefaultTrainingType() {
  return HasBFloat16Products() ? ComputeType::kBFloat16 : ComputeType::kFloat32;
}

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_TRAIN_OPTIONS_H_
