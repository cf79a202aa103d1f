// Text for training, calibration and evaluation.
#ifndef TRIPTYCH_ENGINE_TOOLS_CORPUS_H_
#define TRIPTYCH_ENGINE_TOOLS_CORPUS_H_

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "engine/model/config.h"
#include "engine/text/tokenizer.h"

namespace triptych::tools {

// Inputs of a model and the tokens that it should predict, both [batch, length] int64.
struct Window {
  at::Tensor inputs;  // begin token, then all targets but the last
  at::Tensor targets;
};

// Targets of a window for the held-out loss: the full context, up to a limit, since the attention
// scores of all pairs of positions are in memory.
inline int64_t HeldOutLength(const ModelConfig& config) {
  return std::min<int64_t>(config.max_position_embeddings, 2048);
}
// Targets of a window of the training part for calibration and for choices between models. Shorter
// than HeldOutLength, because several such windows are read at once.
inline int64_t CalibrationLength(const ModelConfig& config) {
  return std::min<int64_t>(config.max_position_embeddings, 512);
}
// Number of calibration windows read at once.
inline constexpr int64_t kCalibrationBatch = 8;

// Held-out fraction of a text by default.
inline constexpr double kDefaultHeldOut = 0.1;

// The tokens of a text file in a training part and, at the end, a held-out part.
class Corpus {
 public:
  // The text for a model with this config, which `model` names in messages. `held_out`: fraction of
  // tokens at the end, in [0, 1). Absent: the part that the config records as not trained on, or
  // kDefaultHeldOut of a text that the config does not name. Throws LoadError if the model was
  // trained on a token of the held-out part; std::runtime_error if `held_out` is out of range or
  // the file cannot be read.
  Corpus(const std::filesystem::path& file, const Tokenizer& tokenizer,
         std::optional<double> held_out, const ModelConfig& config, const std::string& model);

  // Throws LoadError if a model with this config was trained on a token of the held-out part.
  void RequireUnseen(const ModelConfig& config, const std::string& model) const;

  // Throws std::runtime_error if nothing is held out.
  void RequireHeldOut() const;
  // Throws std::runtime_error if the training part is shorter than `length`.
  void RequireTraining(int64_t length) const;

  std::string file_name() const { return file_.filename().string(); }
  int64_t bytes() const { return bytes_; }
  // The text and the split, as a model trained on it records them.
  const TrainingText& identity() const { return identity_; }

  int64_t train_tokens() const { return train_.size(0); }
  int64_t held_out_tokens() const { return held_out_.size(0); }

  // `batch` windows of `length` targets at random positions of the training part. Throws as
  // RequireTraining.
  Window Sample(int64_t batch, int64_t length, std::mt19937_64& generator) const;

  // The held-out part as non-overlapping windows of `length` targets, `batch` at a time. A shorter
  // last window is a batch of its own.
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

// Throws LoadError if the model lacks one of the tokens of the text `file`. `model` is its name.
void CheckTokens(std::span<const int32_t> tokens, const std::filesystem::path& file,
                 const ModelConfig& config, const std::string& model);

// The entry of a model's record for a text, or null.
const TrainingText* FindText(const std::vector<TrainingText>& texts, const std::string& sha256);
// Adds a text to the record. A text that is there already keeps the smaller held-out part.
void AddTrainingText(std::vector<TrainingText>& texts, const TrainingText& text);

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_CORPUS_H_
