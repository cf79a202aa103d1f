// Text to train and evaluate on.
#ifndef TRIPTYCH_ENGINE_TOOLS_CORPUS_H_
#define TRIPTYCH_ENGINE_TOOLS_CORPUS_H_

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "engine/model/config.h"
#include "engine/text/tokenizer.h"

namespace triptych::tools {

// A model's inputs and what it should predict, both [batch, length] int64.
struct Window {
  at::Tensor inputs;  // begin token, then all targets but the last
  at::Tensor targets;
};

// The targets of a window that a model's held-out loss is measured on: its full context, of which
// a long one counts for no more than this. Scores of all pairs of positions are held.
inline int64_t HeldOutLength(const ModelConfig& config) {
  return std::min<int64_t>(config.max_position_embeddings, 2048);
}
// The targets of a window of the training part that a model is calibrated and chosen by: such
// windows are read several at a time, and what they are to show is seen in shorter ones.
inline int64_t CalibrationLength(const ModelConfig& config) {
  return std::min<int64_t>(config.max_position_embeddings, 512);
}
// How many of them are read at once.
inline constexpr int64_t kCalibrationBatch = 8;

// The fraction of a text that is held out unless something else is said.
inline constexpr double kDefaultHeldOut = 0.1;

// The tokens of a text file, split once: the end is held out.
class Corpus {
 public:
  // The text for a model with this config, which `model` names in messages. `held_out` is the
  // fraction of tokens at the end, in [0, 1); absent: the part that the config says it was not
  // trained on, or kDefaultHeldOut of a text that the config does not name. Throws LoadError if the
  // model was trained on any of what would be held out, and std::runtime_error if `held_out` is no
  // such fraction or the file cannot be read.
  Corpus(const std::filesystem::path& file, const Tokenizer& tokenizer,
         std::optional<double> held_out, const ModelConfig& config, const std::string& model);

  // Throws LoadError if a model with this config was trained on any of what is held out.
  void RequireUnseen(const ModelConfig& config, const std::string& model) const;

  // Throws std::runtime_error if nothing is held out.
  void RequireHeldOut() const;
  // Throws std::runtime_error if the training part is shorter than `length`.
  void RequireTraining(int64_t length) const;

  std::string file_name() const { return file_.filename().string(); }
  int64_t bytes() const { return bytes_; }
  // The text and the split, as a model that is trained on it records them.
  const TrainingText& identity() const { return identity_; }

  int64_t train_tokens() const { return train_.size(0); }
  int64_t held_out_tokens() const { return held_out_.size(0); }

  // `batch` windows of `length` targets at random places of the training part. Throws
  // what RequireTraining throws.
  Window Sample(int64_t batch, int64_t length, std::mt19937_64& generator) const;

  // The held-out part as non-overlapping windows of `length` targets, `batch` at a time; the
  // last window may be shorter and comes alone.
  std::vector<Window> HeldOutWindows(int64_t batch, int64_t length) const;

 private:
  // targets: [batch, length] -> the inputs that predict them.
  Window MakeWindow(const at::Tensor& targets) const;

  std::filesystem::path file_;
  int64_t bytes_ = 0;
  TrainingText identity_;
  int64_t begin_token_;
  at::Tensor train_;     // [tokens] int64
  at::Tensor held_out_;  // [tokens] int64
};

// What a model's record says of a text, or null.
const TrainingText* FindText(const std::vector<TrainingText>& texts, const std::string& sha256);
// Adds a text to the record; of one that is there the smaller part stays held out.
void AddTrainingText(std::vector<TrainingText>& texts, const TrainingText& text);

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_CORPUS_H_
