#include "engine/attention/grouped_attention.h"

#include <ATen/ATen.h>

#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/attention/dense.h"
#include "engine/attention/rms_norm.h"

namespace triptych {

GroupedAttention::GroupedAttention(int64_t heads, int64_t groups, GroupedWeights weights,
                                   GroupedOptions options)
    : heads_(heads),
      groups_(groups),
      weights_(std::move(weights)),
      options_(std::move(options)),
      d_qk_(weights_.q.weight.size(0) / heads),
      d_v_(weights_.v.weight.size(0) / groups),
      scores_{.scale = options_.score_factor / std::sqrt(static_cast<double>(d_qk_)),
              .softcap = options_.softcap,
              .window = options_.window} {}

at::Tensor GroupedAttention::Dense(const at::Tensor& x, const at::Tensor& y, bool causal,
                                   CacheFormat cache, Dropout* dropout) const {
  at::Tensor k = Keys(y, PositionsOf(y)).flatten(-2), v = weights_.v(y);
  if (cache != CacheFormat::kFloat32) {
    const std::vector<at::Tensor> parts =
        AsCached(at::cat({k, v}, -1), cache, std::gcd(d_qk_, d_v_))
            .split_with_sizes({k.size(-1), v.size(-1)}, -1);
    k = parts[0], v = parts[1];
  }
  k = k.unflatten(-1, {groups_, d_qk_});  // [batch, L2, G, d_qk]
  v = v.unflatten(-1, {groups_, d_v_});   // [batch, L2, G, d_v]
  return Output(AttendDense(Queries(x, PositionsOf(x)), k, v, scores_, causal, dropout));
}

at::Tensor GroupedAttention::Queries(const at::Tensor& x, const at::Tensor& positions) const {
  return NormAndRotate(weights_.q(x).unflatten(-1, {heads_, d_qk_}), weights_.q_norm, positions);
}

at::Tensor GroupedAttention::Keys(const at::Tensor& y, const at::Tensor& positions) const {
  return NormAndRotate(weights_.k(y).unflatten(-1, {groups_, d_qk_}), weights_.k_norm, positions);
}

at::Tensor GroupedAttention::NormAndRotate(const at::Tensor& heads, const at::Tensor& norm,
                                           const at::Tensor& positions) const {
  at::Tensor normed = heads;
  if (norm.defined()) {
    normed = norm.size(0) == d_qk_
                 ? RmsNorm(heads, norm, options_.norm_eps)
                 : RmsNorm(heads.flatten(-2), norm, options_.norm_eps).view_as(heads);
  }
  return options_.rotary.Apply(normed, positions);
}

at::Tensor GroupedAttention::Rows(const at::Tensor& y, const at::Tensor& positions) const {
  return at::cat({Keys(y, positions).flatten(-2), weights_.v(y)}, -1);
}

std::pair<at::Tensor, at::Tensor> GroupedAttention::KeysAndValues(const at::Tensor& rows) const {
  const int64_t keys = groups_ * d_qk_;
  return {rows.narrow(-1, 0, keys).unflatten(-1, {groups_, d_qk_}),
          rows.narrow(-1, keys, groups_ * d_v_).unflatten(-1, {groups_, d_v_})};
}

}  // namespace triptych
