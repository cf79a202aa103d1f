// Definitions of the published families' mixtures of experts, in float64 and token by token.
//
// Meaning of a config's fields. (x): default of an absent field; null means the default too.
//   deepseek_v2: n_routed_experts (none) E, first_k_dense_replace (0) F, moe_layer_freq (1) I:
//     layers l >= F with l mod I = 0 have experts.
//     num_experts_per_tok K, moe_intermediate_size: required here. n_shared_experts (0).
//     Scores are a softmax. topk_method (greedy): the K best; group_limited_greedy: the K best of
//     the topk_group groups, of n_group of equal size, with the best best score. norm_topk_prob
//     (false): if K > 1, weights are divided by their sum; otherwise they are multiplied by
//     routed_scaling_factor (1).
//   deepseek_v3, kimi_k2, glm4_moe_lite: the same fields, or mlp_layer_types instead of the first
//     two. Scores are sigmoids. The choice is by score plus e_score_correction_bias, and a group's
//     rank the sum of its two best. Weights are scores, divided by their sum if norm_topk_prob and
//     K > 1, and always multiplied by routed_scaling_factor.
//   mixtral: num_local_experts, num_experts_per_tok. Weights are the chosen scores of a softmax,
//     divided by their sum.
//   granitemoe: the same fields. Weights are the softmax of the chosen logits.
//   olmoe: num_experts, num_experts_per_tok, norm_topk_prob (false).
//   qwen2_moe, qwen3_moe: as olmoe, in each decoder_sparse_step-th (1) layer that mlp_only_layers
//     (none) does not name. qwen2_moe has a shared expert, times the sigmoid of a product.
// The lower index is the better of two equal scores.
#ifndef TRIPTYCH_TESTS_SUPPORT_PUBLISHED_EXPERTS_H_
#define TRIPTYCH_TESTS_SUPPORT_PUBLISHED_EXPERTS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "tests/support/published_parts.h"

namespace triptych::published {

// Number of experts of a layer; 0 for a dense one.
int64_t ExpertsOf(const Json& config, int64_t layer);

// The mixture of a layer, whose tensors' names begin with `layer`. x: [length, D] -> [length, D].
at::Tensor MixExperts(const Json& config, const Tensors& tensors, const std::string& layer,
                      const at::Tensor& x);

}  // namespace triptych::published

#endif  // TRIPTYCH_TESTS_SUPPORT_PUBLISHED_EXPERTS_H_
