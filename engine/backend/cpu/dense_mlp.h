// MLP whose weights multiply every row.
#ifndef TRIPTYCH_ENGINE_BACKEND_CPU_DENSE_MLP_H_
#define TRIPTYCH_ENGINE_BACKEND_CPU_DENSE_MLP_H_

#include <cstdint>
#include <utility>

#include "engine/backend/cpu/mlp_layer.h"
#include "engine/kernels/packed_linear.h"
#include "engine/model/config.h"

namespace triptych::cpu {

// The activation of an MLP.
struct Activation {
  MlpKind mlp;
  HiddenAct act;

  // Elements of an input for each element of an output.
  int64_t inputs() const { return mlp == MlpKind::kGelu || mlp == MlpKind::kRelu2 ? 1 : 2; }
  // Returns the activated elements [rows, width]: in h itself if inputs() is 1, otherwise in
  // `room`.
  //   h: [rows, inputs() * width], gate, then up   room: [rows, width], or null if inputs() is 1
  const float* Apply(float* h, int64_t rows, int64_t width, float* room,
                     kernels::KernelContext& context) const;
};

class DenseMlp final : public MlpLayer {
 public:
  struct Weights {
    kernels::PackedLinear in;  // gated: gate, then up; otherwise up: [.., D]
    kernels::PackedLinear down;
  };

  DenseMlp(const Activation& activation, Weights weights)
      : activation_(activation), weights_(std::move(weights)) {}

  void Apply(const float* x, int64_t rows, float* y,
             kernels::KernelContext& context) const override;
  int64_t weight_bytes() const override { return weights_.in.bytes() + weights_.down.bytes(); }

 private:
  Activation activation_;
  Weights weights_;
};

}  // namespace triptych::cpu

#endif  // TRIPTYCH_ENGINE_BACKEND_CPU_DENSE_MLP_H_
