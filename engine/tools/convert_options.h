// Options of a conversion.
#ifndef TRIPTYCH_ENGINE_TOOLS_CONVERT_OPTIONS_H_
#define TRIPTYCH_ENGINE_TOOLS_CONVERT_OPTIONS_H_

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "engine/base/formats.h"
#include "engine/checkpoint/config/config_file.h"
#include "engine/model/config.h"
#include "engine/model/conversion_spec.h"

namespace triptych::tools {

struct ConvertOptions {
  std::filesystem::path from;  // directory or .gguf file
  std::filesystem::path to;    // directory; must be absent or empty
  AttentionKind attention = AttentionKind::kMla;
  // kDeepseek: MLA only. A source of MLA then keeps its latents, and only its form changes.
  checkpoint::ConfigForm format = checkpoint::ConfigForm::kTriptych;
  std::optional<int64_t> groups = {};  // G: required for GQA, not allowed otherwise
  // MLA: at most one of these; without any, the full rank, which is exact.
  std::optional<int64_t> rank;                // r, the same in every layer
  std::optional<int64_t> bytes_per_position;  // at most, over all layers, in the stored dtype
  std::optional<double> max_loss_increase;    // nats per token on the text's training part
  // MLA of rotated keys: d_R, chosen if absent with a text and one of the last two budgets.
  std::optional<int64_t> rope_head_dim = {};
  int64_t fold_frequencies = 1;            // number of adjacent frequencies mixed as one
  std::optional<ConversionMethod> method;  // GQA and MLA; if absent, MethodOf decides
  std::filesystem::path calibrate;         // text, or empty
  // Fraction of the text's end. Losses on it are reported, and decide nothing. Absent: as Corpus
  // has it for the source.
  std::optional<double> held_out = {};
  std::optional<TensorFormat> dtype;  // of the stored weights; the source's if absent
  std::string command = {};           // command line for the card
};

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_CONVERT_OPTIONS_H_
