// Weight formats that a user asks for, and the text of a model's formats.
#ifndef TRIPTYCH_ENGINE_BASE_ASKED_WEIGHT_FORMATS_H_
#define TRIPTYCH_ENGINE_BASE_ASKED_WEIGHT_FORMATS_H_

#include <optional>
#include <string>

#include "engine/base/formats.h"

namespace triptych {

// An absent format is the default: of embeddings and experts `layers`, if that is present.
struct AskedWeightFormats {
  std::optional<WeightFormat> layers = {};  // besides routed experts
  std::optional<WeightFormat> embeddings = {};
  std::optional<WeightFormat> experts = {};

  // The formats of a model whose defaults are `defaults`.
  constexpr WeightFormats Over(const WeightFormats& defaults) const {
    WeightFormats formats = layers ? WeightFormats(*layers) : defaults;
    if (embeddings) formats.embeddings = *embeddings;
    if (experts) formats.experts = *experts;
    return formats;
  }
};

// "bfloat16", "int4, embeddings in bfloat16", "int8, embeddings in float32, experts in int4".
inline std::string WeightsText(const WeightFormats& formats) {
  std::string text(Name(formats.layers));
  if (formats.embeddings != formats.layers) {
    text += ", embeddings in " + std::string(Name(formats.embeddings));
  }
  if (formats.experts != formats.layers) {
    text += ", experts in " + std::string(Name(formats.experts));
  }
  return text;
}

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BASE_ASKED_WEIGHT_FORMATS_H_
