// A checkpoint of one attention kind made out of one of another: engine/definitions.md#conversions.
#ifndef TRIPTYCH_ENGINE_DECODER_CONVERT_WEIGHTS_H_
#define TRIPTYCH_ENGINE_DECODER_CONVERT_WEIGHTS_H_

#include <memory>
#include <string>
#include <vector>

#include "engine/attention/algebra.h"
#include "engine/decoder/decoupled_keys.h"
#include "engine/decoder/weights.h"
#include "engine/model/conversion_spec.h"

namespace triptych {

// min(2*G*d - d_R, D): the rank at which a latent beside decoupled keys of width d_R loses nothing
// more.
int64_t FullRank(const ModelConfig& config, int64_t rope_head_dim = 0);

// The config of what Convert makes, as far as it says what tensors there are and of which shapes.
// REQUIRES: a checked conversion.
ModelConfig ConvertedShape(const ModelConfig& from, const ConversionSpec& to);

// MHA to GQA finds a common basis of each group's heads, or their mean where `to` asks for it or
// keys are rotated; GQA to MHA repeats heads, exactly; MHA or GQA to MLA factors keys and values.
// All by the weights alone. Biases convert; weights keep their dtype.
//
// Throws LoadError if there is no such conversion, a size is out of range or a weight is not
// finite; `source` is the model's name for messages. REQUIRES: a method that needs no text.
Checkpoint Convert(const Checkpoint& from, const ConversionSpec& to, const std::string& source);

// About the bytes that a ConvertedSource takes at most to convert a layer of such a model: its
// attention, with a few copies in float64. What it holds of all layers before the first is made,
// keys and what mixes them, has the room of layers that are not yet packed.
int64_t ConversionBytes(const ModelConfig& from);

// What Convert makes of a checkpoint, layer by layer as it is taken: the same weights, rounded to a
// format.
class ConvertedSource final : public WeightSource {
 public:
  // Reads what it needs of all layers, and converts the first. Throws what Convert throws.
  // REQUIRES: `from` gives float32.
  ConvertedSource(std::unique_ptr<CheckpointReader> from, const ConversionSpec& to,
                  TensorFormat format, const std::string& source);

  const ModelConfig& config() const { return config_; }

  // Throws LoadError, also where a rounded weight is not finite.
  Weights Take(const std::string& prefix) override;

 private:
  // A model of this layer alone, whose tensors have their names.
  Checkpoint ConvertLayer(int64_t layer, const Weights& attention);

  std::unique_ptr<CheckpointReader> from_;
  const ConversionSpec to_;
  const TensorFormat format_;
  const std::string source_;
  DecoupledKeys decoupled_;  // of the layers that are yet to be converted
  Weights first_;            // the attention of the first layer, until it is taken
  ModelConfig config_;
};

// --- The parts, for those who have a text or choose ranks by what they find ------------------

// Throws what Convert throws.
void CheckConversion(const Checkpoint& from, const ConversionSpec& to, const std::string& source);

// The decoupled keys of a checked conversion to MLA; none where keys are not rotated.
DecoupledKeys FindDecoupledKeys(const Checkpoint& from, const ConversionSpec& to,
                                const std::vector<at::Tensor>& covariances = {});

// The same model with the key/value heads of each layer, and the query heads that read them, in
// another order: heads that have the most in common share one of `groups` where they keep more like
// that. `covariances`, of what each layer's attention reads, may be empty. REQUIRES: a checked
// conversion to GQA, keys that are not rotated.
Checkpoint WithLikeHeadsTogether(const Checkpoint& from, int64_t groups,
                                 const std::vector<at::Tensor>& covariances = {});

// The common bases of one layer's key heads and of its value heads.
struct GroupBases {
  CommonBasis keys;
  CommonBasis values;
};

// Those of each layer at this number of groups; `covariances`, of what each layer's attention
// reads, may be empty. REQUIRES: a checked conversion to GQA, keys that are not rotated.
std::vector<GroupBases> FindGroupBases(const Checkpoint& from, int64_t groups,
                                       const std::vector<at::Tensor>& covariances = {});

// The parts of it, one after the other: like heads together, their common bases.
Checkpoint ByCommonBases(const Checkpoint& from, int64_t groups,
                         const std::vector<at::Tensor>& covariances = {});

// The grouped model with these bases, of FindGroupBases(from): W_Q'[h] = U_h^T W_Q[h] and
// b_Q'[h] alike, W_O'[h] = W_O[h] U_h with the values' U, value biases in b_O
// (engine/definitions.md#biases).
Checkpoint ToGroups(const Checkpoint& from, const std::vector<GroupBases>& bases);

// The decomposition of each layer; `covariances`, of what each layer's attention reads, may be
// empty. REQUIRES: a checked conversion to MLA.
// `decoupled` keys are taken out before: rotated keys have some.
std::vector<KeyValueSvd> DecomposeLayers(const Checkpoint& from,
                                         const std::vector<at::Tensor>& covariances = {},
                                         const DecoupledKeys& decoupled = {});

// The latent model with these ranks, one for each layer, cut from DecomposeLayers(from), and with
// these decoupled keys. What is left of rotated keys is not rotated any more.
Checkpoint ToLatent(const Checkpoint& from, const std::vector<KeyValueSvd>& svds,
                    const std::vector<int64_t>& ranks, const DecoupledKeys& decoupled = {});

// The model as it will be when it has been stored and loaded again: float32 weights, rounded to the
// config's torch_dtype.
Checkpoint AsStored(Checkpoint model);

// [W_K; W_V] of every query head in float64, whatever the kind: [2 * H * d, D]; of keys without the
// decoupled ones. REQUIRES: no latent norm. Heads of a common basis are in that basis.
at::Tensor FullKeyValue(const Checkpoint& checkpoint, int64_t layer);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_DECODER_CONVERT_WEIGHTS_H_
