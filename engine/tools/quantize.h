// Quantization of a checkpoint: matrices stored as integers.
#ifndef TRIPTYCH_ENGINE_TOOLS_QUANTIZE_H_
#define TRIPTYCH_ENGINE_TOOLS_QUANTIZE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>

#include "engine/base/formats.h"
#include "engine/decoder/weights.h"
#include "engine/tools/corpus.h"

namespace triptych::tools {

struct QuantizeOptions {
  std::filesystem::path from;  // directory or .gguf file
  std::filesystem::path to;    // directory; must be absent or empty
  WeightFormat format = WeightFormat::kInt8;
  bool keep_embeddings = false;  // unchanged embedding and output matrix
  // Text for rounding (int4 only) and for the reported losses; or empty.
  std::filesystem::path calibrate;
  std::optional<double> held_out =
      {};                    // fraction of its end; absent: as Corpus has it for the source
  std::string command = {};  // command line for the card
};

// Rounds each weight to the nearest integer multiple of its group's scale.
//   weight: [outputs, inputs]; returns the rounded weights, of the same shape, in float32
at::Tensor RoundToNearest(const at::Tensor& weight, WeightFormat format);

// Rounds to four bits by GPTQ (Frantar et al. 2022, arXiv:2210.17323): later columns compensate the
// rounding error of earlier ones, for products with inputs of these moments.
//   weight: [outputs, inputs]   moments: [inputs, inputs] float64, E[x x^T] times any number
//   returns as RoundToNearest
at::Tensor RoundCalibrated(const at::Tensor& weight, const at::Tensor& moments);

// Rounds these matrices to four bits: those that multiply something on the training part of a text
// by RoundCalibrated, the others to the nearest. Returns the names of the others. Layers are
// rounded from the last to the first, several at a time: as many as have sums of x x^T that take
// about `moment_bytes`, but at least one. The text is computed once for each time. All inputs are
// those of unrounded weights. Throws as InputMoments does. REQUIRES: float32 weights.
std::set<std::string> RoundByInputs(Checkpoint& model, const std::set<std::string>& names,
                                    const Corpus& corpus, int64_t moment_bytes);

// Quantizes from directory to directory. Prints a report and writes it to the new model's card.
// Leaves no model behind if it fails. Throws LoadError or std::runtime_error.
void QuantizeModel(const QuantizeOptions& options);

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_QUANTIZE_H_
