#include "engine/attention/dense.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace triptych {
namespace {

// Queries per masked block. Under a causal mask a block reads no keys beyond its last query, nor
// before the window of its first one.
constexpr int64_t kMaskedQueries = 128;

// Additive mask of scores: -infinity where `hidden`, else 0.
at::Tensor MaskOf(const at::Tensor& hidden, const at::TensorOptions& scores) {
  return at::zeros(hidden.sizes(), scores)
      .masked_fill_(hidden, -std::numeric_limits<double>::infinity());
}

// `hidden`: [L1, L2] or [batch, 1, 1, L1, L2], true where a query must not attend to a
// key; or undefined.
at::Tensor AttendBlock(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const ScoreOptions& options, const at::Tensor& hidden,
                       Dropout* dropout = nullptr) {
  const int64_t batch = q.size(0), queries = q.size(1), heads = q.size(2), d_qk = q.size(3);
  const int64_t keys = k.size(1), groups = k.size(2), d_v = v.size(3);
  const int64_t shared = heads / groups;  // query heads that read one group

  // Head h = j * G + g. The heads of a group form the rows of one product with the group's keys.
  const at::Tensor grouped_q = (q * options.scale)
                                   .unflatten(2, {shared, groups})
                                   .permute({0, 3, 2, 1, 4})
                                   .reshape({batch * groups, shared * queries, d_qk});
  const at::Tensor grouped_k = k.permute({0, 2, 3, 1}).reshape({batch * groups, d_qk, keys});
  const at::Tensor grouped_v = v.permute({0, 2, 1, 3}).reshape({batch * groups, keys, d_v});

  at::Tensor scores = at::bmm(grouped_q, grouped_k);  // [batch * G, shared * L1, L2]
  if (options.softcap > 0) scores = at::tanh(scores / options.softcap) * options.softcap;
  if (hidden.defined() && hidden.dim() == 2) {
    scores.add_(MaskOf(hidden, scores.options()).repeat({shared, 1}));
  } else if (hidden.defined()) {
    scores.add_(MaskOf(hidden, scores.options())
                    .expand({batch, groups, shared, queries, keys})
                    .reshape(scores.sizes()));
  }
  at::Tensor weights = at::softmax(scores, -1);
  if (dropout != nullptr) weights = dropout->Apply(weights);
  return at::bmm(weights, grouped_v)
      .view({batch, groups, shared, queries, d_v})
      .permute({0, 3, 2, 1, 4})
      .reshape({batch, queries, heads * d_v});
}

}  // namespace

at::Tensor AttendDense(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const ScoreOptions& scores, bool causal, Dropout* dropout) {
  if (!causal) return AttendBlock(q, k, v, scores, {}, dropout);
  std::vector<at::Tensor> blocks;
  int64_t first = k.size(1) - q.size(1);
  for (const at::Tensor& block : q.split(kMaskedQueries, 1)) {
    const int64_t end = first + block.size(1);
    const int64_t begin = first < scores.window ? 0 : first - scores.window + 1;
    // Query i of the block attends to keys up to first + i, which is column first - begin + i here.
    at::Tensor hidden;
    if (first + 1 < end) {
      const at::Tensor all = at::ones({block.size(1), end - begin}, q.options().dtype(at::kBool));
      hidden = all.triu(first - begin + 1);
      if (end > scores.window) hidden = hidden.logical_or(all.tril(first - begin - scores.window));
    }
    blocks.push_back(AttendBlock(block, k.narrow(1, begin, end - begin),
                                 v.narrow(1, begin, end - begin), scores, hidden, dropout));
    first = end;
  }
  return at::cat(blocks, 1);
}

at::Tensor AttendPadded(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const ScoreOptions& scores, const at::Tensor& last) {
  const at::Tensor positions = at::arange(k.size(1), last.options());
  std::vector<at::Tensor> blocks;
  for (int64_t first = 0; first < q.size(1); first += kMaskedQueries) {
    const int64_t count = std::min(kMaskedQueries, q.size(1) - first);
    const at::Tensor own = last.narrow(1, first, count).unsqueeze(-1);
    at::Tensor hidden = positions > own;  // [batch, queries, keys]
    if (k.size(1) > scores.window) hidden = hidden.logical_or(positions <= own - scores.window);
    blocks.push_back(
        AttendBlock(q.narrow(1, first, count), k, v, scores, hidden.unsqueeze(1).unsqueeze(1)));
  }
  return at::cat(blocks, 1);
}

}  // namespace triptych
