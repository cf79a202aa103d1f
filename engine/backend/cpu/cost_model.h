// Which way MLA attends the tokens of a prompt: engine/definitions.md#vanilla-or-reduced.
#ifndef TRIPTYCH_ENGINE_BACKEND_CPU_COST_MODEL_H_
#define TRIPTYCH_ENGINE_BACKEND_CPU_COST_MODEL_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/backend/model_backend.h"
#include "engine/model/config.h"
#include "engine/model/latent_shape.h"

namespace triptych::cpu {

// What it costs to expand one element of a head's key or value and to lay it out for the kernel, in
// the multiply-adds that it can save: what makes ExpansionCrossover come near to where
// `build/release/bin/cost_model_bench` measures it. With vectors of 32 bytes (AVX2) it is another
// than with any others (tests/bench/README.md).
double ExpansionCost();

// Whether expanded attention, of factored weights, ever costs less than reduced: its core does.
bool ExpandingCanPay(const LatentShape& shape);

// The length of the shortest fresh prompt that the given layers, each in factored form, attend
// sooner by expanded attention, which expands keys and values, than by reduced attention.
//
// Of a prompt of S tokens, each head's core takes S (S + 1) / 2 pairs times d_qk + d_R + d_v
// multiply-adds by vanilla and times 2r + d_R reduced. Taking queries and outputs through W_UK and
// W_UV takes as many as taking keys and values through them, so what is left to weigh against the
// pairs is the expansion: S (d_qk + d_R + d_v) elements.
//
// The engine takes it for a position: tokens of a prompt before it attend reduced, those from it on
// by vanilla. A choice by position alone, which keeps every token on its path however its prompt is
// cut, cannot be best for all lengths: a prompt of up to about 1.6 times the crossover is expanded
// for too few tokens, and so is the last chunk of a prompt if it is short and nothing is kept of
// the chunks before (MostScratchBytes).
int64_t ExpansionCrossover(const std::vector<LatentShape>& layers, double expansion_cost);

// The position of a prompt from which on factored layers expand keys and values; absent if that is
// beyond the context or no layer can gain by it. `asked`: as BackendOptions::expand_from has it.
std::optional<int64_t> ExpandFrom(const ModelConfig& config, std::optional<int64_t> asked);

}  // namespace triptych::cpu

#endif  // TRIPTYCH_ENGINE_BACKEND_CPU_COST_MODEL_H_
