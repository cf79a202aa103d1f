#include "engine/backend/cpu/experts_mlp.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>

#include "engine/kernels/residual_stream.h"

namespace triptych::cpu {
namespace {

using RoutedRows = kernels::PackedLinear::RoutedRows;

// Most choices whose activations are held at a time: enough rows of each expert that its weights
// are read seldom.
constexpr int64_t kSliceRows = 1024;

}  // namespace

ExpertsMlp::ExpertsMlp(const Activation& activation, Weights weights)
    : activation_(activation),
      weights_(std::move(weights)),
      expert_rows_(weights_.router.experts) {}

int64_t ExpertsMlp::weight_bytes() const {
  const auto vectors = static_cast<int64_t>(weights_.router.bias.size() * sizeof(float));
  return weights_.router_matrix.bytes() + vectors + weights_.in.bytes() + weights_.down.bytes() +
         (weights_.shared ? weights_.shared->weight_bytes() : 0) +
         (weights_.shared_gate ? weights_.shared_gate->bytes() : 0);
}

void ExpertsMlp::Apply(const float* x, int64_t rows, float* y,
                       kernels::KernelContext& context) const {
  const kernels::Workspace::Scope scope(context.workspace);
  kernels::Workspace& workspace = context.workspace;
  const int64_t experts = weights_.router.experts, choices = weights_.router.choices;
  const int64_t all = rows * choices;
  auto* const chosen = workspace.Take<int32_t>(all);  // [rows, choices]
  float* const weights = workspace.Floats(all);
  {
    const kernels::Workspace::Scope scores(workspace);
    float* const logits = workspace.Floats(rows * experts);
    weights_.router_matrix.Apply(x, rows, logits, context);
    kernels::ChooseExperts(weights_.router, logits, rows, chosen, weights, context);
  }
  ApplyShared(x, rows, y, context);

  // Choices sorted by expert, then by row.
  auto* const ends = workspace.Take<int64_t>(experts);  // of each expert's choices
  auto* const sorted_rows = workspace.Take<int64_t>(all);
  float* const sorted_weights = workspace.Floats(all);
  std::fill_n(ends, experts, 0);
  for (int64_t i = 0; i < all; ++i) ++ends[chosen[i]];
  for (int64_t expert = 0; expert < experts; ++expert) {
    if (ends[expert] > 0) {
      expert_rows_[expert].fetch_add(ends[expert], std::memory_order_relaxed);
    }
  }
  std::exclusive_scan(ends, ends + experts, ends, int64_t{0});
  for (int64_t i = 0; i < all; ++i) {
    const int64_t to = ends[chosen[i]]++;
    sorted_rows[to] = i / choices;
    sorted_weights[to] = weights[i];
  }

  // Slices end between experts, unless one expert alone fills a slice.
  auto* const parts = workspace.Take<RoutedRows>(experts);
  size_t count = 0;
  int64_t begin = 0, end = 0;  // of the current slice
  const auto finish_slice = [&] {
    AddExperts(x, {{parts, count}, sorted_rows + begin, sorted_weights + begin}, y, context);
    count = 0;
    begin = end;
  };
  for (int64_t expert = 0; expert < experts; ++expert) {
    if (ends[expert] > end && ends[expert] - begin > kSliceRows && count > 0) finish_slice();
    while (end < ends[expert]) {
      const int64_t taken = std::min(ends[expert] - end, kSliceRows - (end - begin));
      parts[count++] = {.group = expert, .first = end - begin, .rows = taken};
      end += taken;
      if (end - begin == kSliceRows) finish_slice();
    }
  }
  if (count > 0) finish_slice();
}

void ExpertsMlp::ApplyShared(const float* x, int64_t rows, float* y,
                             kernels::KernelContext& context) const {
  const int64_t width = weights_.router_matrix.shape().inputs;
  if (!weights_.shared) {
    std::fill_n(y, rows * width, 0.0f);
    return;
  }
  weights_.shared->Apply(x, rows, y, context);
  if (!weights_.shared_gate) return;
  const kernels::Workspace::Scope scope(context.workspace);
  float* const gates = context.workspace.Floats(rows);
  weights_.shared_gate->Apply(x, rows, gates, context);
  for (int64_t row = 0; row < rows; ++row) {
    const float gate = 1 / (1 + std::exp(-gates[row]));
    std::for_each_n(y + row * width, width, [=](float& element) { element *= gate; });
  }
}

void ExpertsMlp::AddExperts(const float* x, const Slice& slice, float* y,
                            kernels::KernelContext& context) const {
  const kernels::Workspace::Scope scope(context.workspace);
  const int64_t rows = slice.parts.back().first + slice.parts.back().rows;
  const int64_t width = weights_.down.shape().inputs, model_width = weights_.down.shape().outputs;
  const int64_t in_width = weights_.in.shape().outputs;
  float* const h = context.workspace.Floats(rows * in_width);
  float* const room = activation_.inputs() > 1 ? context.workspace.Floats(rows * width) : nullptr;
  float* const out = context.workspace.Floats(rows * model_width);
  auto* const same = context.workspace.Take<int64_t>(rows);
  std::iota(same, same + rows, 0);
  weights_.in.ApplyRouted(slice.parts, slice.rows, x, h, context);
  const float* const activated = activation_.Apply(h, rows, width, room, context);
  weights_.down.ApplyRouted(slice.parts, same, activated, out, context);
  kernels::AddWeightedRows(out, slice.rows, slice.weights, rows, model_width, y, context);
}

}  // namespace triptych::cpu
