// Weight formats that a command's options ask for.
#ifndef TRIPTYCH_ENGINE_TOOLS_ASKED_FORMATS_H_
#define TRIPTYCH_ENGINE_TOOLS_ASKED_FORMATS_H_

#include <stdexcept>
#include <string>

#include "engine/base/asked_weight_formats.h"
#include "engine/model/config.h"

namespace triptych::tools {

// asked.Over(defaults). Throws std::invalid_argument if it names a format of experts and the model
// has none.
inline WeightFormats FormatsFor(const ModelConfig& config, const AskedWeightFormats& asked,
                                const WeightFormats& defaults) {
  if (asked.experts && config.experts.n_routed_experts == 0) {
    throw std::invalid_argument("--expert-dtype: " + std::string(Name(*asked.experts)) +
                                "; allowed: nothing, the model has no experts");
  }
  return asked.Over(defaults);
}

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_ASKED_FORMATS_H_
