// Trains a decoder on a text file.
#ifndef TRIPTYCH_ENGINE_TOOLS_TRAIN_H_
#define TRIPTYCH_ENGINE_TOOLS_TRAIN_H_

#include <cstdint>
#include <filesystem>

namespace triptych {

struct TrainOptions {
  // One of the two: the config.json of a model to make, or the checkpoint of one to train on.
  std::filesystem::path config = {};
  std::filesystem::path from = {};
  std::filesystem::path text = {};
  std::filesystem::path output = {};  // directory
  double held_out = 0.1;              // fraction of the text's end, never trained on
  int64_t steps = 2000;
  int64_t batch_size = 16;        // windows of the full context in a step
  double learning_rate = 1.5e-3;  // peak: linear warm-up, then cosine decay to a tenth
  int64_t warmup_steps = 100;
  double weight_decay = 0.1;  // of matrices
  double dropout = 0.1;       // of what blocks add to the residual stream
  double clip = 1.0;          // of the gradient's norm
  uint64_t seed = 1;
  int64_t save_every = 250;  // steps between resumable checkpoints
  // A checkpoint to distil from, or empty: the loss is then (1 - teacher_weight) of the text's
  // cross entropy and teacher_weight of that with the teacher's distribution (Hinton et al. 2015,
  // arXiv:1503.02531, at temperature 1).
  std::filesystem::path teacher = {};
  double teacher_weight = 0.5;
};

// Trains in bfloat16 products over float32 weights with AdamW, shows progress on stderr, and
// leaves a checkpoint in `output`, which holds no model before. While it runs, `output` also holds
// the state to resume from; the same command continues an interrupted run with the same result.
// Throws LoadError or std::runtime_error.
void Train(const TrainOptions& options);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_TOOLS_TRAIN_H_
