#include "engine/tools/calibration.h"

#include <memory>
#include <random>

#include "engine/checkpoint/tokenizer/load_tokenizer.h"
#include "engine/tools/evaluate.h"

namespace triptych::tools {
namespace {

constexpr int64_t kChoosingBatches = 16;  // of ChoosingWindows

std::shared_ptr<const Tokenizer> FittingTokenizer(const Checkpoint& model,
                                                  const std::filesystem::path& path) {
  std::shared_ptr<const Tokenizer> tokenizer = checkpoint::LoadTokenizer(path);
  checkpoint::CheckVocabulary(*tokenizer, model.config, path.string());
  return tokenizer;
}

}  // namespace

std::vector<Window> ChoosingWindows(const Corpus& corpus, const ModelConfig& config) {
  std::mt19937_64 generator(3);
  std::vector<Window> windows;
  for (int64_t i = 0; i < kChoosingBatches; ++i) {
    windows.push_back(corpus.Sample(kCalibrationBatch, CalibrationLength(config), generator));
  }
  return windows;
}

Calibration::Calibration(const std::filesystem::path& text, std::optional<double> held_out,
                         const Checkpoint& from, const std::filesystem::path& path)
    : name_(text.filename().string()),
      corpus_(text, *FittingTokenizer(from, path), held_out, from.config, path.string()),
      decoder_(from.config, from.weights, ComputeType::kFloat32) {}

double Calibration::HeldOutLossBefore() const { return HeldOutLoss(decoder_, corpus_); }

double Calibration::ChoosingLossBefore() const {
  return MeanLoss(decoder_, ChoosingWindows(corpus_, decoder_.config()));
}

double Calibration::ChoosingLoss(const Checkpoint& model) const {
  return MeanLoss(model, ChoosingWindows(corpus_, model.config));
}

}  // namespace triptych::tools
