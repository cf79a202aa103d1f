// Texts about a training run: progress lines, and parts of the model's card.
#ifndef TRIPTYCH_ENGINE_TOOLS_TRAINING_REPORT_H_
#define TRIPTYCH_ENGINE_TOOLS_TRAINING_REPORT_H_

#include <string>
#include <utility>
#include <vector>

#include "engine/tools/train_options.h"
#include "engine/tools/training_state.h"

namespace triptych::tools {

// The line of a measurement.
std::string LossText(const Measurement& point);

// The measurement with the lowest held-out loss, or null.
const Measurement* Best(const std::vector<Measurement>& curve);

// Markdown. `windows`: words for shorter held-out windows, or empty.
std::string CurveText(const std::vector<Measurement>& curve, const std::string& windows);

// Rows of a card about a run, except its text and command.
std::vector<std::pair<std::string, std::string>> CardFacts(const TrainOptions& options,
                                                           ComputeType compute);

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_TRAINING_REPORT_H_
