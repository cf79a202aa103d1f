// Memory and work of a model's steps, counted from its config
// (engine/definitions.md#costs-of-a-step).
#ifndef TRIPTYCH_ENGINE_BACKEND_CPU_STEP_COST_H_
#define TRIPTYCH_ENGINE_BACKEND_CPU_STEP_COST_H_

#include <cstdint>
#include <optional>

#include "engine/base/formats.h"
#include "engine/model/config.h"

namespace triptych::cpu {

// Totals of all layers. Generated tokens take the reduced path.
struct StepCost {
  int64_t weight_bytes = 0;   // held: packed matrices, vectors, position tables
  int64_t read_bytes = 0;     // of the matrices that every step multiplies by
  int64_t expert_bytes = 0;   // of one routed expert in each layer that has them
  int64_t product_flops = 0;  // of one token by those matrices and by its experts
  int64_t output_flops = 0;   // the part of product_flops by the output matrix
  int64_t expert_flops = 0;   // the part of product_flops by routed experts
  int64_t core_flops = 0;     // of one token and one attended position
};

// Bytes that a step of `tokens` tokens reads, on average, if each token chooses its experts at
// random: an expert that several choose is read once.
double ReadBytes(const ModelConfig& config, const StepCost& cost, double tokens);

// Counts what PackWeights makes. `expand_from`: from ExpandFrom; if present, MLA also holds
// Factors::expand_keys. Throws LoadError if a matrix has more than 2^48 weights.
StepCost CountStep(const ModelConfig& config, const WeightFormats& formats,
                   std::optional<int64_t> expand_from);

}  // namespace triptych::cpu

#endif  // TRIPTYCH_ENGINE_BACKEND_CPU_STEP_COST_H_
