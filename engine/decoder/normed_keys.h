// Normed queries and keys as a conversion to latents factors them:
// engine/definitions.md#latents-of-normed-keys.
#ifndef TRIPTYCH_ENGINE_DECODER_NORMED_KEYS_H_
#define TRIPTYCH_ENGINE_DECODER_NORMED_KEYS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "engine/decoder/weights.h"

namespace triptych {

// The keys whose products with queries are the scores before the inverse norms: W_K with the weight
// of the norm, and heads of the size that they have after it: [G * d, D], float64. Without norms,
// W_K itself. REQUIRES: MHA or GQA without qk_norm_all_heads.
at::Tensor KeysToFactor(const Checkpoint& from, int64_t layer);

// The factor of each element of a query after its norm, for the products above: [H * d], float64.
// REQUIRES: the same, and norms.
at::Tensor NormedQueryFactors(const Checkpoint& from, int64_t layer);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_DECODER_NORMED_KEYS_H_
