// From a checkpoint's tensors to weights that kernels read.
#ifndef TRIPTYCH_ENGINE_BACKEND_CPU_PACK_WEIGHTS_H_
#define TRIPTYCH_ENGINE_BACKEND_CPU_PACK_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/attention/latent_attention.h"
#include "engine/backend/cpu/cpu_model.h"
#include "engine/decoder/weights.h"
#include "engine/kernels/thread_pool.h"
#include "engine/model/config.h"

namespace triptych {

// One latent layer. `expand`: whether runs may be attended by vanilla attention, where that can
// pay. `rotation`: the cosines, then the sines [max_positions, 2, d_R / 2]; null where d_R is 0.
std::unique_ptr<const AttentionLayer> PackLatent(
    const LatentShape& shape, const ReducedWeights& weights, WeightFormat format,
    const std::shared_ptr<const std::vector<float>>& rotation, bool expand, ThreadPool& pool);

// Packs float32 or bfloat16 tensors in the CPU's memory, rounded to `format`, and lets go of each
// as it is packed. `expand_from`: as BackendOptions has it. The threads of `pool` pack.
CpuWeights PackWeights(const ModelConfig& config, Weights weights, WeightFormat format,
                       std::optional<int64_t> expand_from, ThreadPool& pool);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BACKEND_CPU_PACK_WEIGHTS_H_
