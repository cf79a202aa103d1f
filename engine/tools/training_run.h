// Inputs of a training run, as its options name them.
#ifndef TRIPTYCH_ENGINE_TOOLS_TRAINING_RUN_H_
#define TRIPTYCH_ENGINE_TOOLS_TRAINING_RUN_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "engine/decoder/weights.h"
#include "engine/model/config.h"
#include "engine/tools/corpus.h"
#include "engine/tools/gradients.h"
#include "engine/tools/train_options.h"
#include "engine/tools/training_state.h"

namespace triptych::tools {

struct TrainingRun {
  std::optional<Checkpoint> from;
  ModelConfig config;  // of the new model
  std::map<std::string, std::string> tokenizer_files;
  Corpus corpus;
  int64_t window;  // tokens of a window
  ComputeType compute;
  Teachers teachers;

  // Length of the windows that held-out losses are measured in.
  int64_t measured_length() const;
};

// Reads the model, the text and the teachers. Throws LoadError or std::runtime_error.
TrainingRun ReadTrainingRun(const TrainOptions& options);

// The options and digests of the inputs that a resumed run must share.
RunKey MakeRunKey(const TrainOptions& options, const TrainingRun& run);

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_TRAINING_RUN_H_
