#include "engine/attention/algebra.h"

#include <tuple>
#include <vector>

namespace triptych {

at::Tensor RepeatHeads(const at::Tensor& rows, int64_t heads, int64_t d) {
  const int64_t groups = rows.size(0) / d;
  // Head j * G + g: the whole list of groups, heads / G times.
  std::vector<int64_t> repeats(rows.dim(), 1);
  repeats[0] = heads / groups;
  return rows.repeat(repeats);
}

at::Tensor PoolHeads(const at::Tensor& rows, int64_t groups, int64_t d) {
  return rows.unflatten(0, {-1, groups * d}).mean(0);
}

LatentFactors FactorKeyValue(const at::Tensor& w_k, const at::Tensor& w_v, int64_t rank) {
  const at::Tensor stacked = at::cat({w_k, w_v}).to(at::kDouble);  // [rows, D]
  const at::Tensor u = std::get<0>(at::linalg_svd(stacked, /*full_matrices=*/false));
  const at::Tensor basis = u.narrow(1, 0, rank);  // [rows, r]
  return {.down = at::mm(basis.t(), stacked),
          .up_k = basis.narrow(0, 0, w_k.size(0)).contiguous(),
          .up_v = basis.narrow(0, w_k.size(0), w_v.size(0)).contiguous()};
}

}  // namespace triptych
