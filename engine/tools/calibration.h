// Calibration text of a conversion.
#ifndef TRIPTYCH_ENGINE_TOOLS_CALIBRATION_H_
#define TRIPTYCH_ENGINE_TOOLS_CALIBRATION_H_

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/decoder/decoder.h"
#include "engine/tools/corpus.h"

namespace triptych::tools {

// Windows of the text's training part, of CalibrationLength, whose loss decides between
// conversions: the same windows in every call. Throws std::runtime_error if that part is shorter
// than one window.
std::vector<Window> ChoosingWindows(const Corpus& corpus, const ModelConfig& config);

// A text, and the losses of models on it.
class Calibration {
 public:
  // `text` for the model `from`, which was read from `path` with its tokenizer. `held_out`: as
  // Corpus has it. Throws LoadError or std::runtime_error.
  Calibration(const std::filesystem::path& text, std::optional<double> held_out,
              const Checkpoint& from, const std::filesystem::path& path);

  const std::string& name() const { return name_; }  // of the file
  const Corpus& corpus() const { return corpus_; }

  // Loss of `from` on the held-out part.
  double HeldOutLossBefore() const;
  // Loss of `from` and of another model on ChoosingWindows.
  double ChoosingLossBefore() const;
  double ChoosingLoss(const Checkpoint& model) const;

 private:
  std::string name_;
  Corpus corpus_;
  Decoder decoder_;
};

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_CALIBRATION_H_
