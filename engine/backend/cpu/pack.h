// Weights as kernels read them.
#ifndef TRIPTYCH_ENGINE_BACKEND_CPU_PACK_H_
#define TRIPTYCH_ENGINE_BACKEND_CPU_PACK_H_

#include <ATen/core/Tensor.h>

#include <vector>

#include "engine/attention/linear.h"
#include "engine/kernels/packed_linear.h"
#include "engine/kernels/thread_pool.h"

namespace triptych::cpu {

// Linear layers that read the same input as one, whose outputs follow one another, rounded to the
// format. Weights are float32 or bfloat16; those not defined are left out.
kernels::PackedLinear Pack(const std::vector<Linear>& layers, WeightFormat format,
                           kernels::ThreadPool& pool);

// A product per head, rounded to the format.
//   weight: [heads, out, in] float32 or bfloat16
kernels::PackedLinear PackHeads(const at::Tensor& weight, WeightFormat format,
                                kernels::ThreadPool& pool);

// A tensor's elements in float32; none if it is undefined.
std::vector<float> ToFloats(const at::Tensor& tensor);

}  // namespace triptych::cpu

#endif  // TRIPTYCH_ENGINE_BACKEND_CPU_PACK_H_
