// Trains a decoder on a text file.
#ifndef TRIPTYCH_ENGINE_TOOLS_TRAIN_H_
#define TRIPTYCH_ENGINE_TOOLS_TRAIN_H_

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/formats.h"

namespace triptych::tools {

struct TrainOptions {
  // One of the two: the config.json of a model to make, or the checkpoint of one to train on.
  std::filesystem::path config = {};
  std::filesystem::path from = {};
  std::filesystem::path text = {};
  std::filesystem::path output = {};  // directory
  // Fraction of the text's end, never trained on; absent: what Corpus says for the model.
  std::optional<double> held_out = {};
  int64_t steps = 2000;
  int64_t batch_size = 16;        // windows in a step
  int64_t window = 0;             // tokens of a window; 0: the full context
  double learning_rate = 1.5e-3;  // peak: linear warm-up, then a cosine down to zero
  int64_t warmup_steps = 100;
  double weight_decay = 0.1;  // of matrices
  double dropout = 0.1;       // as Decoder::Forward has it
  double clip = 1.0;          // of the gradient's norm
  uint64_t seed = 1;
  // Steps between states that a run can go on from. At each, and at the end, the weights are
  // measured on the part held out, in windows no longer than those they are trained on: what is
  // further may be all new to them. The best are kept.
  int64_t save_every = 250;
  std::optional<ComputeType> compute = {};  // of matrix products; absent: DefaultTrainingType()
  // Checkpoints to distil from, and the share of the loss that is against the mean of what they
  // expect.
  std::vector<std::filesystem::path> teachers = {};
  double teacher_weight = 0.5;
  std::string command = {};  // that was typed, for the card
};

// What products of training are computed in unless something else is said: bfloat16 on machines
// that multiply such numbers, else float32.
ComputeType DefaultTrainingType();

// Trains float32 weights with AdamW, shows progress on stderr, and leaves in `output`, which holds
// no model and no card before, a checkpoint with its card: of the weights that did best on the part
// held out, or of the last where nothing is. Its config names the text. While it runs, `output`
// also holds the state to resume from; the same command continues an interrupted run with the same
// result, and refuses if anything that the result hangs on is another: options, text, teachers,
// number of compute threads. Throws LoadError or std::runtime_error.
void Train(const TrainOptions& options);

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_TRAIN_H_
