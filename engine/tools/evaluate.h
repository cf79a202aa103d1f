// Held-out loss of models.
#ifndef TRIPTYCH_ENGINE_TOOLS_EVALUATE_H_
#define TRIPTYCH_ENGINE_TOOLS_EVALUATE_H_

#include <filesystem>
#include <optional>

#include "engine/base/asked_weight_formats.h"
#include "engine/decoder/decoder.h"
#include "engine/decoder/weights.h"
#include "engine/tools/corpus.h"

namespace triptych::tools {

// Mean negative log-likelihood of the windows' targets, in nats per token.
double MeanLoss(const Decoder& decoder, const std::vector<Window>& windows);
// Mean loss of the model's decoder, computed in float32.
double MeanLoss(const Checkpoint& model, const std::vector<Window>& windows);

// The mean loss over the whole held-out part, in windows of HeldOutLength
// (engine/definitions.md#held-out-loss).
double HeldOutLoss(const Decoder& decoder, const Corpus& corpus);
// Held-out loss of the model's decoder, computed in float32 except for cache rows in `cache`.
double HeldOutLoss(const Checkpoint& model, const Corpus& corpus,
                   CacheFormat cache = CacheFormat::kFloat32);

// Divergence in nats, the sum of p (log p - log q) over the vocabulary, from the logits of p and q.
//   p_logits, q_logits: [tokens, vocab]; returns [tokens] float64
at::Tensor KlDivergence(const at::Tensor& p_logits, const at::Tensor& q_logits);

struct EvaluateOptions {
  std::filesystem::path model;
  std::filesystem::path text;
  std::optional<double> held_out = {};  // absent: as Corpus has it for the model
  AskedWeightFormats weights = {};      // default: float32
  CacheFormat cache = CacheFormat::kFloat32;
};

// Prints the held-out loss of the model as the server computes it on the CPU, with these formats of
// weights and cache. Also prints whether the model's record names another text or no text at all.
// Throws LoadError or std::runtime_error.
void Evaluate(const EvaluateOptions& options);

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_EVALUATE_H_
