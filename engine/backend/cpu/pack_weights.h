// Packing of a checkpoint's tensors into CpuWeights.
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

// Packs one latent layer. `expand`: whether to hold what the expanded path needs, if that can pay.
// `rotation`: cosines, then sines [max_positions, 2, d_R / 2]; null if d_R is 0.
std::unique_ptr<const AttentionLayer> PackLatent(
    const LatentShape& shape, const ReducedWeights& weights, WeightFormat format,
    const std::shared_ptr<const std::vector<float>>& rotation, bool expand,
    kernels::ThreadPool& pool);

// Packs float32 or bfloat16 tensors in host memory, rounded to their formats: first those of no
// layer, one by one, then the attention and the MLP of each layer. Each part is packed and released
// before the next is taken, except that the next expert is read while one is packed.
// `expand_from`: BackendOptions::expand_from. Packs on the threads of
// `pool`. Calls `on_layer` with the number of layers packed so far. Throws what `weights` throws.
CpuWeights PackWeights(const ModelConfig& config, WeightSource& weights,
                       const WeightFormats& formats, std::optional<int64_t> expand_from,
                       kernels::ThreadPool& pool,
                       const std::function<void(int64_t layers)>& on_layer = {});
// The same for weights that are all in memory.
CpuWeights PackWeights(const ModelConfig& config, Weights weights, const WeightFormats& formats,
                       std::optional<int64_t> expand_from, kernels::ThreadPool& pool);

// Approximate peak of PackWeights besides the packed weights, in bytes, if tensors are read as
// `read`: the largest part, the same again for reading and reordering it, and the copies that
// Reduce makes. Token matrices are packed first, so only their excess over the packed layers
// counts.
int64_t UnpackedBytes(const ModelConfig& config, const WeightFormats& formats, TensorFormat read);

}  // namespace triptych::cpu

#endif  // TRIPTYCH_ENGINE_BACKEND_CPU_PACK_WEIGHTS_H_
