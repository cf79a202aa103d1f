// From a checkpoint's tensors to weights that kernels read.
#ifndef TRIPTYCH_ENGINE_BACKEND_CPU_PACK_WEIGHTS_H_
#define TRIPTYCH_ENGINE_BACKEND_CPU_PACK_WEIGHTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "engine/attention/latent_attention.h"
#include "engine/backend/cpu/cpu_model.h"
#include "engine/decoder/weights.h"
#include "engine/kernels/thread_pool.h"
#include "engine/model/config.h"

namespace triptych::cpu {

// One latent layer. `expand`: whether runs may be attended by expanded attention, where that can
// pay. `rotation`: the cosines, then the sines [max_positions, 2, d_R / 2]; null where d_R is 0.
std::unique_ptr<const AttentionLayer> PackLatent(
    const LatentShape& shape, const ReducedWeights& weights, WeightFormat format,
    const std::shared_ptr<const std::vector<float>>& rotation, bool expand,
    kernels::ThreadPool& pool);

// Packs float32 or bfloat16 tensors in the CPU's memory, rounded to their formats: first those of
// no layer, one by one, then of each layer its attention and its MLP, each taken when what was
// taken before is packed and let go of. `expand_from`: as BackendOptions has it. The threads of
// `pool` pack. `on_layer` is told how many layers are packed. Throws what `weights` throws.
CpuWeights PackWeights(const ModelConfig& config, WeightSource& weights,
                       const WeightFormats& formats, std::optional<int64_t> expand_from,
                       kernels::ThreadPool& pool,
                       const std::function<void(int64_t layers)>& on_layer = {});
// The same of weights that are all there.
CpuWeights PackWeights(const ModelConfig& config, Weights weights, const WeightFormats& formats,
                       std::optional<int64_t> expand_from, kernels::ThreadPool& pool);

// About the bytes that PackWeights holds at most beside what it has packed in the end, where
// tensors are read as `read`: those of the largest part, as much again to read them and to bring
// them in order, and what Reduce makes of them. Token matrices, which come first, count as far as
// they take more than the packed layers.
int64_t UnpackedBytes(const ModelConfig& config, const WeightFormats& formats, TensorFormat read);

}  // namespace triptych::cpu

#endif  // TRIPTYCH_ENGINE_BACKEND_CPU_PACK_WEIGHTS_H_
