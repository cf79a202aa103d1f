// What a model holds and what its steps read and compute, counted from its config alone
// (engine/definitions.md#costs-of-a-step). Torch-free.
#ifndef TRIPTYCH_ENGINE_BACKEND_CPU_STEP_COST_H_
#define TRIPTYCH_ENGINE_BACKEND_CPU_STEP_COST_H_

#include <cstdint>
#include <optional>

#include "engine/base/formats.h"
#include "engine/model/config.h"

namespace triptych::cpu {

// Of all layers together. Tokens that are generated attend reduced.
struct StepCost {
  int64_t weight_bytes = 0;   // held: matrices as they are packed, vectors, tables of positions
  int64_t read_bytes = 0;     // of the matrices that every step multiplies with
  int64_t product_flops = 0;  // of one token with those
  int64_t output_flops = 0;   // of these, with the output matrix
  int64_t core_flops = 0;     // of one token and one position that it attends
};

// Of what PackWeights makes. `expand_from`: from ExpandFrom; whether MLA holds what expands keys.
// Throws LoadError if a matrix has more than 2^48 weights.
StepCost CountStep(const ModelConfig& config, const WeightFormats& formats,
                   std::optional<int64_t> expand_from);

}  // namespace triptych::cpu

#endif  // TRIPTYCH_ENGINE_BACKEND_CPU_STEP_COST_H_
