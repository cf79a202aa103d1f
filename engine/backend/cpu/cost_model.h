// Cost model of MLA's two paths for prompt tokens: engine/definitions.md#expanded-or-reduced.
#ifndef TRIPTYCH_ENGINE_BACKEND_CPU_COST_MODEL_H_
#define TRIPTYCH_ENGINE_BACKEND_CPU_COST_MODEL_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/backend/model_backend.h"
#include "engine/model/config.h"
#include "engine/model/latent_shape.h"

namespace triptych::cpu {

// Cost of expanding one element of a head's key or value and laying it out for the kernel, in
// multiply-adds of the core. Fitted so that ExpansionCrossover approximates the crossover that
// `build/release/bin/cost_model_bench` measures: one value for vectors of 32 bytes (AVX2), one for
// all others (tests/bench/README.md).
double ExpansionCost();

// Whether the expanded path can cost less than the reduced one: whether its core does. REQUIRES:
// the weights are factored.
bool ExpandingCanPay(const LatentShape& shape);

// Length of the shortest fresh prompt that the given layers attend faster by the expanded path than
// by the reduced one; kNeverExpand if there is none. REQUIRES: the weights of all layers are
// factored.
//
// For a prompt of S tokens, each head's core takes S (S + 1) / 2 pairs times d_qk + d_R + d_v
// multiply-adds if expanded, and times 2r + d_R if reduced. Multiplying queries and outputs by W_UK
// and W_UV costs the same as multiplying latents by them. The difference left to weigh
// against the pairs is the expansion: S (d_qk + d_R + d_v) elements.
//
// The engine uses the length as a position: prompt tokens before it take the reduced path, those
// from it on the expanded one. A choice by position only keeps every token on its path however the
// prompt is cut into chunks, but it is not the best for every length. A prompt of up to about 1.6
// times the crossover expands for too few tokens. So does a short last chunk if no scratch is kept
// of the chunks before it (MostScratchBytes).
int64_t ExpansionCrossover(const std::vector<LatentShape>& layers, double expansion_cost);

// The first prompt position that factored layers attend by the expanded path; absent if it is
// beyond the context or no layer can gain. `asked`: BackendOptions::expand_from.
std::optional<int64_t> ExpandFrom(const ModelConfig& config, std::optional<int64_t> asked);

}  // namespace triptych::cpu

#endif  // TRIPTYCH_ENGINE_BACKEND_CPU_COST_MODEL_H_
