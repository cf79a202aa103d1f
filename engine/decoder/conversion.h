// A checkpoint of one attention kind made out of one of another: engine/definitions.md#conversions.
#ifndef TRIPTYCH_ENGINE_DECODER_CONVERSION_H_
#define TRIPTYCH_ENGINE_DECODER_CONVERSION_H_

#include <string>
#include <vector>

#include "engine/attention/algebra.h"
#include "engine/decoder/weights.h"
#include "engine/model/conversion.h"

namespace triptych {

// min(2*G*d, D): the rank at which a latent loses nothing.
int64_t FullRank(const ModelConfig& config);

// MHA to GQA pools heads; GQA to MHA repeats them, exactly; MHA or GQA to MLA factors keys and
// values. Biases convert; weights keep their dtype.
//
// Throws LoadError if there is no such conversion, a size is out of range or a weight is not
// finite; `source` is the model's name for messages.
Checkpoint Convert(const Checkpoint& from, const Conversion& to, const std::string& source);

// --- The parts, for those who choose ranks by what they find --------------------------------

// Throws what Convert throws.
void CheckConversion(const Checkpoint& from, const Conversion& to, const std::string& source);

// The decomposition of each layer; `covariances`, of what each layer's attention reads, may be
// empty. REQUIRES: a checked conversion to MLA.
std::vector<KeyValueSvd> DecomposeLayers(const Checkpoint& from,
                                         const std::vector<at::Tensor>& covariances = {});

// The latent model with these ranks, one for each layer, cut from DecomposeLayers(from).
Checkpoint ToLatent(const Checkpoint& from, const std::vector<KeyValueSvd>& svds,
                    const std::vector<int64_t>& ranks);

// The model as it will be when it has been stored and loaded again: float32 weights, rounded to the
// config's torch_dtype.
Checkpoint AsStored(Checkpoint model);

// [W_K; W_V] of every query head in float64, whatever the kind: [2 * H * d, D]. REQUIRES: no
// decoupled key, no latent norm.
at::Tensor FullKeyValue(const Checkpoint& checkpoint, int64_t layer);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_DECODER_CONVERSION_H_
