#include "engine/attention/dense.h"

#include <limits>
#include <vector>

namespace triptych {
namespace {

// Queries computed at once under a causal mask; keys beyond them are never touched.
constexpr int64_t kCausalBlock = 128;

// Of queries at positions `first` and on, if causal: query i sees keys 0 to first + i.
at::Tensor AttendBlock(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal,
                       int64_t first) {
  const int64_t batch = q.size(0), queries = q.size(1), heads = q.size(2), d_qk = q.size(3);
  const int64_t keys = k.size(1), groups = k.size(2), d_v = v.size(3);
  const int64_t shared = heads / groups;  // query heads that read one group

  // Head h = j * G + g. The heads of a group become rows of one product with its keys.
  const at::Tensor grouped_q = q.unflatten(2, {shared, groups})
                                   .permute({0, 3, 2, 1, 4})
                                   .reshape({batch * groups, shared * queries, d_qk});
  const at::Tensor grouped_k = k.permute({0, 2, 3, 1}).reshape({batch * groups, d_qk, keys});
  const at::Tensor grouped_v = v.permute({0, 2, 1, 3}).reshape({batch * groups, keys, d_v});

  at::Tensor scores = at::bmm(grouped_q, grouped_k);  // [batch * G, shared * L1, L2]
  if (causal && first + 1 < keys) {
    const double hidden = -std::numeric_limits<double>::infinity();
    const at::Tensor mask = at::full({queries, keys}, hidden, scores.options()).triu(first + 1);
    scores.add_(mask.repeat({shared, 1}));
  }
  const at::Tensor weights = at::softmax(scores, -1);
  return at::bmm(weights, grouped_v)
      .view({batch, groups, shared, queries, d_v})
      .permute({0, 3, 2, 1, 4})
      .reshape({batch, queries, heads * d_v});
}

}  // namespace

at::Tensor AttendDense(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
                       bool causal) {
  const at::Tensor scaled_q = q * scale;
  if (!causal) return AttendBlock(scaled_q, k, v, /*causal=*/false, /*first=*/0);
  std::vector<at::Tensor> blocks;
  int64_t first = k.size(1) - q.size(1);
  for (const at::Tensor& block : scaled_q.split(kCausalBlock, 1)) {
    const int64_t seen = first + block.size(1);
    blocks.push_back(AttendBlock(block, k.narrow(1, 0, seen), v.narrow(1, 0, seen),
                                 /*causal=*/true, first));
    first = seen;
  }
  return at::cat(blocks, 1);
}

}  // namespace triptych
