// Conversions of a checkpoint's weights between attention kinds: engine/definitions.md#conversions.
#ifndef TRIPTYCH_ENGINE_DECODER_CONVERT_WEIGHTS_H_
#define TRIPTYCH_ENGINE_DECODER_CONVERT_WEIGHTS_H_

#include <string>
#include <vector>

#include "engine/attention/algebra.h"
#include "engine/decoder/decoupled_keys.h"
#include "engine/decoder/weights.h"
#include "engine/model/conversion_spec.h"

namespace triptych {

// Converts by the weights only. MHA to GQA finds a common basis of each group's heads, or their
// mean if `to` asks for it or keys are rotated. GQA to MHA repeats heads, exactly. MHA or GQA to
// MLA factors keys and values. Biases convert; weights keep their dtype.
//
// Throws LoadError as CheckConversion does, and if the converted config is not valid; `source` is
// the model's name for messages. REQUIRES: a method that needs no text.
Checkpoint Convert(const Checkpoint& from, const ConversionSpec& to, const std::string& source);

// Convert without its checks. `decoupled`: FindDecoupledKeys(from, to). REQUIRES: a checked
// conversion.
Checkpoint ConvertChecked(const Checkpoint& from, const ConversionSpec& to,
                          const DecoupledKeys& decoupled);

// --- The parts of a conversion, for callers that have a text or choose the ranks --------------

// The decoupled keys of a checked conversion to MLA; none if keys are not rotated.
DecoupledKeys FindDecoupledKeys(const Checkpoint& from, const ConversionSpec& to,
                                const std::vector<at::Tensor>& covariances = {});

// The same model with the key/value heads of each layer, and the query heads that read them, in
// another order: the heads most alike share one of `groups`, in the layers whose common bases keep
// more energy so. `covariances`: of the inputs of each layer's attention; may be empty. REQUIRES: a
// checked conversion to GQA, keys that are not rotated.
Checkpoint WithLikeHeadsTogether(const Checkpoint& from, int64_t groups,
                                 const std::vector<at::Tensor>& covariances = {});

// The common bases of one layer's key heads and of its value heads.
struct GroupBases {
  CommonBasis keys;
  CommonBasis values;
};

// The bases of each layer for this number of groups. `covariances` and REQUIRES: as above.
std::vector<GroupBases> FindGroupBases(const Checkpoint& from, int64_t groups,
                                       const std::vector<at::Tensor>& covariances = {});

// WithLikeHeadsTogether, FindGroupBases and ToGroups in one.
Checkpoint ByCommonBases(const Checkpoint& from, int64_t groups,
                         const std::vector<at::Tensor>& covariances = {});

// The grouped model with these bases, of FindGroupBases(from): W_Q'[h] = U_h^T W_Q[h] and
// b_Q'[h] alike, W_O'[h] = W_O[h] U_h with the values' U, value biases in b_O
// (engine/definitions.md#biases).
Checkpoint ToGroups(const Checkpoint& from, const std::vector<GroupBases>& bases);

// The decomposition of each layer. `covariances`: of the inputs of each layer's attention; may be
// empty. `decoupled` keys, which rotated keys have, are subtracted before. REQUIRES: a checked
// conversion to MLA.
std::vector<KeyValueSvd> DecomposeLayers(const Checkpoint& from,
                                         const std::vector<at::Tensor>& covariances = {},
                                         const DecoupledKeys& decoupled = {});

// The latent model with these ranks, one for each layer, cut from DecomposeLayers(from), and with
// these decoupled keys. The rest of rotated keys is not rotated.
Checkpoint ToLatent(const Checkpoint& from, const std::vector<KeyValueSvd>& svds,
                    const std::vector<int64_t>& ranks, const DecoupledKeys& decoupled = {});

// The model after it has been stored and loaded: float32 weights, rounded to the config's
// torch_dtype.
Checkpoint AsStored(Checkpoint model);

// [W_K; W_V] of every query head in float64, for every attention kind: [2 * H * d, D]. Decoupled
// keys are left out. Heads of a common basis are in that basis. REQUIRES: no latent norm.
at::Tensor FullKeyValue(const Checkpoint& checkpoint, int64_t layer);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_DECODER_CONVERT_WEIGHTS_H_
