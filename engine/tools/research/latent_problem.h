// Random problems and verdicts of the numerical tests in verify.h.
#ifndef TRIPTYCH_ENGINE_TOOLS_RESEARCH_LATENT_PROBLEM_H_
#define TRIPTYCH_ENGINE_TOOLS_RESEARCH_LATENT_PROBLEM_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "engine/attention/latent_attention.h"
#include "engine/tools/research/verify.h"

namespace triptych::tools {

// Bound of relative errors in float64, of engine/definitions.md#tolerances.
inline constexpr double kProof = 1e-11;

// "holds" or "FAILS"
const char* Verdict(bool holds);

// Standard normal, in float64.
at::Tensor Normal(at::IntArrayRef sizes);

struct LatentProblem {
  LatentShape shape;
  LatentWeights weights;
  at::Tensor x;  // [B, L1, D1]
  at::Tensor y;  // [B, L2, D2]
};

// In float64, from options.seed. `scaled`: the weights have the variance 1 / inputs instead of 1.
LatentProblem RandomProblem(const VerifyReductionOptions& options, bool scaled);

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_RESEARCH_LATENT_PROBLEM_H_
