#include "engine/backend/cpu/grouped_layer.h"

#include <cmath>
#include <utility>

#include "engine/kernels/rotation.h"

namespace triptych {

GroupedLayer::GroupedLayer(const PagedRowLayout& layout, Weights weights)
    : layout_(layout),
      scale_(static_cast<float>(1.0 / std::sqrt(static_cast<double>(layout.key_width)))),
      weights_(std::move(weights)) {}

void GroupedLayer::Attend(const float* x, const LayerStep& step, const PagedCache& cache,
                          KernelContext& context, float* y) const {
  const Workspace::Scope scope(context.workspace);
  const int64_t tokens = step.tokens(), width = weights_.qkv.shape().outputs;
  const int64_t head = layout_.key_width, heads = layout_.heads;
  // [tokens, H * d_qk + G * d_qk + G * d_v]
  float* const qkv = context.workspace.Floats(tokens * width);
  weights_.qkv.Apply(x, tokens, qkv, context);
  if (weights_.rotation != nullptr) {  // keys follow queries
    RotateHeads(
        weights_.rotation->data(), step.positions.data(), tokens,
        {.heads = heads + layout_.groups, .dim = head, .head_stride = head, .row_stride = width},
        qkv, context);
  }
  WritePagedRows(qkv + heads * head, width, step.runs, cache, context);
  float* const out = context.workspace.Floats(tokens * heads * layout_.value_width);
  PagedAttention(qkv, width, cache, layout_, scale_, step.runs, out, heads * layout_.value_width,
                 context);
  weights_.o.Apply(out, tokens, y, context);
}

}  // namespace triptych
