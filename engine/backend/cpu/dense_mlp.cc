#include "engine/backend/cpu/dense_mlp.h"

#include "engine/kernels/activation.h"

namespace triptych::cpu {

const float* Activation::Apply(float* h, int64_t rows, int64_t width, float* room,
                               kernels::KernelContext& context) const {
  switch (mlp) {
    case MlpKind::kGelu:
      act == HiddenAct::kGeluExact ? kernels::Gelu(h, rows, width, context)
                                   : kernels::GeluTanh(h, rows, width, context);
      return h;
    case MlpKind::kRelu2:
      kernels::SquaredRelu(h, rows, width, context);
      return h;
    case MlpKind::kSwiglu:
      kernels::GatedSilu(h, rows, width, room, context);
      return room;
    case MlpKind::kGeglu:
      kernels::GatedGeluTanh(h, rows, width, room, context);
      return room;
  }
  return nullptr;
}

void DenseMlp::Apply(const float* x, int64_t rows, float* y,
                     kernels::KernelContext& context) const {
  const kernels::Workspace::Scope scope(context.workspace);
  const int64_t width = weights_.down.shape().inputs;
  float* const h = context.workspace.Floats(rows * weights_.in.shape().outputs);
  float* const room = activation_.inputs() > 1 ? context.workspace.Floats(rows * width) : nullptr;
  weights_.in.Apply(x, rows, h, context);
  weights_.down.Apply(activation_.Apply(h, rows, width, room, context), rows, y, context);
}

}  // namespace triptych::cpu
