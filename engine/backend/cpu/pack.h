// Packing of tensors into PackedLinear.
#ifndef TRIPTYCH_ENGINE_BACKEND_CPU_PACK_H_
#define TRIPTYCH_ENGINE_BACKEND_CPU_PACK_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "engine/attention/linear.h"
#include "engine/kernels/packed_linear.h"
#include "engine/kernels/thread_pool.h"

namespace triptych::cpu {

// Packs layers that read the same input as one layer with concatenated outputs, rounded to the
// format. Skips undefined layers. Throws std::invalid_argument if weights are neither float32 nor
// bfloat16.
kernels::PackedLinear Pack(const std::vector<Linear>& layers, WeightFormat format,
                           kernels::ThreadPool& pool);

// Packs the same as one group of `packed`, which has their inputs and, together, their outputs.
// Throws as Pack does.
void PackGroup(const std::vector<Linear>& layers, int64_t group, kernels::ThreadPool& pool,
               kernels::PackedLinear& packed);

// Packs one product per head, rounded to the format. Throws as Pack does.
//   weight: [heads, out, in] float32 or bfloat16
kernels::PackedLinear PackHeads(const at::Tensor& weight, WeightFormat format,
                                kernels::ThreadPool& pool);

// A tensor's elements in float32; none if it is undefined.
std::vector<float> ToFloats(const at::Tensor& tensor);

}  // namespace triptych::cpu

#endif  // TRIPTYCH_ENGINE_BACKEND_CPU_PACK_H_
