// Widths of a latent attention layer, and the forms of its reduced weights
// (engine/definitions.md#multi-head-latent-attention).
#ifndef TRIPTYCH_ENGINE_MODEL_LATENT_SHAPE_H_
#define TRIPTYCH_ENGINE_MODEL_LATENT_SHAPE_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/model/config.h"

namespace triptych {

struct LatentShape {
  int64_t heads = 0;    // H
  int64_t d_qk = 0;     // content width of a query or key vector
  int64_t d_v = 0;      // width of a value vector
  int64_t rank = 0;     // r
  int64_t d_rope = 0;   // d_R
  double norm_eps = 0;  // of the norms of latents, of low-rank queries, of queries and keys
  // The width that queries are projected from; 0: D1.
  int64_t query_rank = 0;
  double score_factor = 1;  // besides 1 / sqrt(d_qk + d_R)
  // G, if keys are normed: a row then has the inverse norm of each of G keys
  // (engine/definitions.md#normed-keys). Else 0.
  int64_t normed_keys = 0;

  // Scale of the products of reduced queries and rows: 1 / sqrt(r + d_R), as queries have the other
  // factors. With normed keys, the norm of a query comes before any factor, and the scale is
  // score_factor / sqrt(d_qk + d_R).
  double reduced_scale() const;
};

// The shape of one layer. REQUIRES: the attention is MLA.
LatentShape LatentShapeOf(const ModelConfig& config, int64_t layer);

// The two forms of reduced weights; results are equal.
enum class ReducedForm {
  kFactored,       // W_Q then W_UK^T; W_UV then W_O: 2D^2 + 3rD elements in the decoder
  kPremultiplied,  // W^_Q and W^_O: (2H + 1)rD elements
};

std::string_view Name(ReducedForm form);

// The form with fewer elements, for queries of D1 = `width`. Normed keys are always factored: the
// norm of a query is taken between the factors.
ReducedForm SmallerForm(const LatentShape& shape, int64_t width);

// The smaller form of every layer; empty unless the attention is MLA.
std::vector<ReducedForm> ReducedForms(const ModelConfig& config);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_MODEL_LATENT_SHAPE_H_
