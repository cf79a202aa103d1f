// Weights of a decoder's layers by their roles.
#ifndef TRIPTYCH_ENGINE_DECODER_LAYER_WEIGHTS_H_
#define TRIPTYCH_ENGINE_DECODER_LAYER_WEIGHTS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "engine/attention/grouped_attention.h"
#include "engine/attention/latent_attention.h"
#include "engine/attention/linear.h"
#include "engine/attention/rotary.h"
#include "engine/decoder/weights.h"
#include "engine/model/config.h"

namespace triptych {

struct NormWeights {
  at::Tensor weight;  // [D]
  at::Tensor bias;    // [D], or undefined
};

struct MlpWeights {
  Linear gate;  // [intermediate, D]; undefined under GELU
  Linear up;    // [intermediate, D]
  Linear down;  // [D, intermediate]
};

struct ExpertsWeights {
  at::Tensor router;               // [E, D]; undefined: the layer has no experts
  at::Tensor correction_bias;      // [E], or undefined
  std::vector<MlpWeights> routed;  // [E], of the experts that `weights` holds
  MlpWeights shared;               // undefined without shared experts
  at::Tensor shared_gate;          // [1, D], or undefined
};

// Every function below shares the tensors and copies nothing. A tensor that a config does not have
// is undefined.

NormWeights FindNorm(const Weights& weights, const std::string& name);
// The MLP of a prefix: MlpPrefix, ExpertPrefix or SharedExpertsPrefix.
MlpWeights FindMlp(const Weights& weights, const std::string& prefix);
ExpertsWeights FindExperts(const ModelConfig& config, const Weights& weights, int64_t layer);
GroupedWeights FindGrouped(const Weights& weights, int64_t layer);
LatentWeights FindLatent(const Weights& weights, int64_t layer);

// The rotation of queries and keys, or of decoupled keys under MLA; undefined unless positions are
// rotary.
struct LayerRotary {
  Rotary shared;  // of all layers except those that turn locally
  Rotary local;   // undefined if none does

  const Rotary& Of(const ModelConfig& config, int64_t layer) const {
    return config.TurnsLocally(layer) ? local : shared;
  }
};

// Grouped attention's options. `rotary`: of MakeRotary.
GroupedOptions GroupedOptionsOf(const ModelConfig& config, int64_t layer,
                                const LayerRotary& rotary);

// Names of the norms before a layer's attention, before its MLP, of their outputs, and after all
// layers.
std::string AttentionNormName(int64_t layer);
std::string MlpNormName(int64_t layer);
std::string AttentionOutputNormName(int64_t layer);
std::string MlpOutputNormName(int64_t layer);
inline constexpr const char* kFinalNormName = "model.norm";

// The output matrix: the embedding if the two are tied.
at::Tensor FindOutputMatrix(const ModelConfig& config, const Weights& weights);

// sin(p / 10000^(2i/D)) at 2i, cos at 2i+1 (Vaswani et al. 2017, arXiv:1706.03762):
// [positions, width] float64. REQUIRES: an even width.
at::Tensor SinusoidalPositions(int64_t positions, int64_t width);

// Learned or sinusoidal positions [max_positions, D], which are added to the embedding; or
// undefined.
at::Tensor PositionTable(const ModelConfig& config, const Weights& weights, at::Device device);

LayerRotary MakeRotary(const ModelConfig& config, at::Device device);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_DECODER_LAYER_WEIGHTS_H_
