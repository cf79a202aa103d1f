// Makes a checkpoint whose matrices are integers out of one.
#ifndef TRIPTYCH_ENGINE_TOOLS_QUANTIZE_H_
#define TRIPTYCH_ENGINE_TOOLS_QUANTIZE_H_

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <optional>
#include <string>

#include "engine/base/formats.h"

namespace triptych::tools {

struct QuantizeOptions {
  std::filesystem::path from;  // directory
  std::filesystem::path to;    // directory; must be absent or empty
  WeightFormat format = WeightFormat::kInt8;
  bool keep_embeddings = false;  // the embedding and the output matrix stay numbers
  // Text to round by, for int4, and to report losses on; or empty.
  std::filesystem::path calibrate;
  std::optional<double> held_out = {};  // of its end; absent: what Corpus says for the source
  std::string command = {};             // that was typed, for the card
};

// Each weight to the nearest integer of its group's scale.
//   weight: [outputs, inputs]; returns the same in float32
at::Tensor RoundToNearest(const at::Tensor& weight, WeightFormat format);

// Rounded to four bits so that products with inputs of these moments lose little: what rounding
// changes in one column, those after it make up for. GPTQ: Frantar et al. 2022, arXiv:2210.17323.
//   weight: [outputs, inputs]   moments: [inputs, inputs] float64, E[x x^T] times any number
//   returns as RoundToNearest
at::Tensor RoundCalibrated(const at::Tensor& weight, const at::Tensor& moments);

// From directory to directory; prints what it did and writes the same into the new model's card. No
// model is left behind if it fails. Throws LoadError or std::runtime_error.
void QuantizeModel(const QuantizeOptions& options);

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_QUANTIZE_H_
