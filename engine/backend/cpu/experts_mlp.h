// Mixture of experts on CPU kernels (engine/definitions.md#experts).
#ifndef TRIPTYCH_ENGINE_BACKEND_CPU_EXPERTS_MLP_H_
#define TRIPTYCH_ENGINE_BACKEND_CPU_EXPERTS_MLP_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/backend/cpu/dense_mlp.h"
#include "engine/backend/cpu/mlp_layer.h"
#include "engine/kernels/packed_linear.h"
#include "engine/kernels/router.h"

namespace triptych::cpu {

// Rows are sorted by expert, so that an expert's weights are read once for all of its rows. The
// result is the output of the shared MLP, if there is one, plus those of a row's experts in the
// order of their indices.
class ExpertsMlp final : public MlpLayer {
 public:
  struct Weights {
    kernels::Router router;
    kernels::PackedLinear router_matrix;  // [E, D] float32
    kernels::PackedLinear in;             // per expert gate, then up: [.., D]
    kernels::PackedLinear down;           // per expert [D, width]
    std::optional<DenseMlp> shared;
    std::optional<kernels::PackedLinear> shared_gate;  // [1, D] float32
  };

  ExpertsMlp(const Activation& activation, Weights weights);

  void Apply(const float* x, int64_t rows, float* y,
             kernels::KernelContext& context) const override;
  std::span<const std::atomic<int64_t>> expert_rows() const override { return expert_rows_; }
  int64_t weight_bytes() const override;

 private:
  // Choices of consecutive experts, in their order.
  struct Slice {
    std::span<const kernels::PackedLinear::RoutedRows> parts;
    const int64_t* rows;   // [choices], of x and of y
    const float* weights;  // [choices]
  };

  // y: the shared MLP's output times its gate, or zeros.
  void ApplyShared(const float* x, int64_t rows, float* y, kernels::KernelContext& context) const;
  // Adds the outputs of a slice's experts to y.
  void AddExperts(const float* x, const Slice& slice, float* y,
                  kernels::KernelContext& context) const;

  Activation activation_;
  Weights weights_;
  mutable std::vector<std::atomic<int64_t>> expert_rows_;  // [E]
};

}  // namespace triptych::cpu

#endif  // TRIPTYCH_ENGINE_BACKEND_CPU_EXPERTS_MLP_H_
