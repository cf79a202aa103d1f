// Choice of a token's experts, on LibTorch's operations (engine/definitions.md#experts).
#ifndef TRIPTYCH_ENGINE_DECODER_EXPERTS_H_
#define TRIPTYCH_ENGINE_DECODER_EXPERTS_H_

#include <ATen/core/Tensor.h>

#include "engine/decoder/layer_weights.h"
#include "engine/model/config.h"

namespace triptych {

struct ExpertChoice {
  at::Tensor experts;  // [tokens, K] int64, the best first; of equal ones the lower index first
  at::Tensor weights;  // [tokens, K] in float32, or in float64 if x is
};

// x: [tokens, D], of any dtype; scores are float32, or float64 if x is.
ExpertChoice ChooseExperts(const ExpertsConfig& config, const ExpertsWeights& weights,
                           const at::Tensor& x);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_DECODER_EXPERTS_H_
