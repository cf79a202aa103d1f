#include "engine/backend/cpu/grouped_layer.h"

#include <utility>

#include "engine/kernels/norm.h"
#include "engine/kernels/rotation.h"

namespace triptych::cpu {

GroupedLayer::GroupedLayer(const kernels::PagedRowLayout& layout,
                           const kernels::PagedScores& scores, Weights weights)
    : layout_(layout), scores_(scores), weights_(std::move(weights)) {}

void GroupedLayer::Attend(const float* x, const LayerStep& step, const kernels::PagedCache& cache,
                          kernels::KernelContext& context, float* y) const {
  const kernels::Workspace::Scope scope(context.workspace);
  const int64_t tokens = step.tokens(), width = weights_.qkv.shape().outputs;
  const int64_t head = layout_.key_width, heads = layout_.heads;
  // [tokens, H * d_qk + G * d_qk + G * d_v]
  float* const qkv = context.workspace.Floats(tokens * width);
  weights_.qkv.Apply(x, tokens, qkv, context);
  if (!weights_.q_norm.empty()) {
    const auto norm = [&](float* rows, int64_t count, const std::vector<float>& weight) {
      const int64_t normed = std::ssize(weight);  // of one head, or of all
      kernels::RmsNormHeads(rows, width, tokens, count * head / normed, normed, weight.data(),
                            weights_.norm_eps, context);
    };
    norm(qkv, heads, weights_.q_norm);
    norm(qkv + heads * head, layout_.groups, weights_.k_norm);
  }
  if (weights_.rotation != nullptr) {  // keys follow queries
    kernels::RotateHeads(
        weights_.rotation->data(), step.positions.data(), tokens,
        {.heads = heads + layout_.groups, .dim = head, .head_stride = head, .row_stride = width},
        qkv, context);
  }
  kernels::WritePagedRows(qkv + heads * head, width, step.runs, cache, context);
  float* const out = context.workspace.Floats(tokens * heads * layout_.value_width);
  kernels::PagedAttention(qkv, width, cache, layout_, scores_, step.runs, out,
                          heads * layout_.value_width, context);
  weights_.o.Apply(out, tokens, y, context);
}

}  // namespace triptych::cpu
