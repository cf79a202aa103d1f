// Router of a mixture of experts: the choice of each token's experts.
#ifndef TRIPTYCH_ENGINE_KERNELS_ROUTER_H_
#define TRIPTYCH_ENGINE_KERNELS_ROUTER_H_

#include <cstdint>
#include <vector>

#include "engine/kernels/context.h"

namespace triptych::kernels {

// Rules of the choice (engine/definitions.md#experts).
struct Router {
  int64_t experts = 0;           // E
  int64_t choices = 0;           // K, of a token; at most E
  bool sigmoid = false;          // scores are sigmoids; otherwise a softmax over all experts
  std::vector<float> bias = {};  // [E], added to scores for the choice only; or empty
  int64_t groups = 1;            // of consecutive experts; divides E
  int64_t chosen_groups = 1;     // that a token chooses from; they have at least K experts
  int64_t best_of_group = 1;     // the experts whose scores rank a group by their sum
  bool normalize = false;        // divide weights by their sum plus least_sum
  float least_sum = 0;
  float scale = 1;  // of the weights
};

// Chooses the experts of each row. The lower index wins among equal scores. A row's result depends
// on that row only. Logits that are not finite give valid experts, and weights of any value.
//   logits: [rows, E]
//   experts: [rows, K], ascending   weights: [rows, K]
void ChooseExperts(const Router& router, const float* logits, int64_t rows, int32_t* experts,
                   float* weights, KernelContext& context);

}  // namespace triptych::kernels

#endif  // TRIPTYCH_ENGINE_KERNELS_ROUTER_H_
