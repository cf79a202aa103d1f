#include "engine/decoder/normed_keys.h"

#include <ATen/ATen.h>

#include <string>

#include "engine/decoder/tensor_specs.h"

namespace triptych {
namespace {

// z of each key head: [G, 1]. A head of zeros stays as it is.
//   keys: [G, d, D]
at::Tensor Sizes(const at::Tensor& keys) {
  const at::Tensor squares = keys.square().sum({1, 2}).unsqueeze(1);
  return at::where(squares > 0, (static_cast<double>(keys.size(1)) / squares).sqrt(),
                   at::ones_like(squares));
}

at::Tensor KeyHeads(const Checkpoint& from, const std::string& prefix) {
  return from.weights.at(prefix + "k_proj.weight")
      .to(at::kDouble)
      .unflatten(0, {-1, from.config.head_dim});
}

}  // namespace

at::Tensor KeysToFactor(const Checkpoint& from, int64_t layer) {
  const std::string prefix = AttentionPrefix(layer);
  if (!from.config.qk_norm) return from.weights.at(prefix + "k_proj.weight");
  const at::Tensor keys = KeyHeads(from, prefix);
  const at::Tensor weight = from.weights.at(prefix + "k_norm.weight").to(at::kDouble);
  return (keys * (Sizes(keys) * weight).unsqueeze(2)).flatten(0, 1);
}

at::Tensor NormedQueryFactors(const Checkpoint& from, int64_t layer) {
  const std::string prefix = AttentionPrefix(layer);
  const at::Tensor weight = from.weights.at(prefix + "q_norm.weight").to(at::kDouble);
  const at::Tensor of_groups = weight / Sizes(KeyHeads(from, prefix));  // [G, d]
  return of_groups.repeat({from.config.num_attention_heads / of_groups.size(0), 1}).flatten();
}

}  // namespace triptych
