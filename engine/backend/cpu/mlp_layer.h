// Interface of an MLP on CPU kernels.
#ifndef TRIPTYCH_ENGINE_BACKEND_CPU_MLP_LAYER_H_
#define TRIPTYCH_ENGINE_BACKEND_CPU_MLP_LAYER_H_

#include <atomic>
#include <cstdint>
#include <span>

#include "engine/kernels/context.h"

namespace triptych::cpu {

// Thread safety: const methods may be called concurrently, each with its own KernelContext.
class MlpLayer {
 public:
  virtual ~MlpLayer() = default;

  // A row's result has the same bits whatever other rows there are, and on any number of threads.
  //   x: [rows, D]   y: [rows, D], not overlapping x
  virtual void Apply(const float* x, int64_t rows, float* y,
                     kernels::KernelContext& context) const = 0;

  // Number of rows that each expert got since the layer was made; empty without experts. Any thread
  // may read it.
  virtual std::span<const std::atomic<int64_t>> expert_rows() const { return {}; }

  // Bytes of the packed weights.
  virtual int64_t weight_bytes() const = 0;
};

}  // namespace triptych::cpu

#endif  // TRIPTYCH_ENGINE_BACKEND_CPU_MLP_LAYER_H_
