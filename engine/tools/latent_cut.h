// Ranks of the latents and widths of the decoupled keys of a conversion to MLA.
#ifndef TRIPTYCH_ENGINE_TOOLS_LATENT_CUT_H_
#define TRIPTYCH_ENGINE_TOOLS_LATENT_CUT_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/decoder/convert_weights.h"
#include "engine/tools/calibration.h"
#include "engine/tools/convert_options.h"
#include "engine/tools/corpus.h"

namespace triptych::tools {

// The decompositions that a model of latents is cut from, and the rank of each layer.
struct LatentCut {
  DecoupledKeys decoupled;
  std::vector<KeyValueSvd> svds;
  std::vector<int64_t> ranks;

  int64_t elements() const;  // of a position, over all layers
};

// The widths of decoupled keys that BestCut tries, ascending: a quarter of a head's, doubled until
// G * d, which is exact. Widths above 2 * d are left out if a layer's queries, [H * (d + d_R), D],
// would have more elements than all its other weights: the G * d of large models. REQUIRES: MHA or
// GQA with rotary positions.
std::vector<int64_t> DecoupledWidths(const ModelConfig& config);

// The cost of losing all of a layer's energy, for each layer: the divergence of the model from
// itself with only that layer cut to a quarter of its full rank, in nats per token of the text's
// training part, divided by the energy lost by that.
std::vector<double> Sensitivities(const Checkpoint& from, const std::vector<KeyValueSvd>& svds,
                                  const Corpus& corpus, const DecoupledKeys& decoupled = {});

// One rank for each layer, at least 1 each and `total` in all (or every layer's full rank, if that
// is less). They lose the least energy, summed over the layers with these weights.
std::vector<int64_t> AllocateRanks(const std::vector<KeyValueSvd>& svds,
                                   const std::vector<double>& weights, int64_t total);

// True if the conversion chooses the width of decoupled keys, for which it needs a text and a
// budget. Throws std::runtime_error if there is a budget and no text.
bool ChoosesWidth(const ConvertOptions& options, const ModelConfig& from);

// The cut that the options ask for, with these decoupled keys. `covariances`: of each layer's
// inputs, or empty. Throws std::runtime_error if the budget cannot be met.
LatentCut CutLatents(const ConvertOptions& options, const Checkpoint& from, DecoupledKeys decoupled,
                     const std::vector<at::Tensor>& covariances,
                     const std::optional<Calibration>& calibration);

// The best cut of all DecoupledWidths: the fewest elements for a budget of loss, the least loss for
// a budget of bytes. Throws std::runtime_error if no width meets the budget. REQUIRES:
// ChoosesWidth.
LatentCut BestCut(const ConvertOptions& options, const Checkpoint& from,
                  const std::vector<at::Tensor>& covariances,
                  const std::optional<Calibration>& calibration);

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_LATENT_CUT_H_
