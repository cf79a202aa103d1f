// Rules of conversions between attention kinds, and the config that a conversion makes.
#ifndef TRIPTYCH_ENGINE_DECODER_CONVERSION_RULES_H_
#define TRIPTYCH_ENGINE_DECODER_CONVERSION_RULES_H_

#include <cstdint>
#include <string>

#include "engine/decoder/weights.h"
#include "engine/model/config.h"
#include "engine/model/conversion_spec.h"

namespace triptych {

// min(2*G*d - d_R, D): the rank at which a latent besides decoupled keys of width d_R loses nothing
// more.
int64_t FullRank(const ModelConfig& config, int64_t rope_head_dim = 0);

// d_R of a conversion: the width that a conversion to MLA asks for, by default G*d, at which
// nothing is lost, for rotated keys. 0 if keys are not rotated, and for other conversions.
int64_t RopeHeadDim(const ConversionSpec& to, const ModelConfig& from);

// Whether a conversion by the weights only gives the heads of a group a common basis.
bool HasCommonBases(const ConversionSpec& to, const ModelConfig& from);

// Whether a conversion to MLA makes inverse norms of normed keys: those of heads without a bias.
bool HasInverseNorms(const ModelConfig& from);

// The config of the model that Convert makes, as far as it determines the tensors and their shapes.
// REQUIRES: a checked conversion.
ModelConfig ConvertedShape(const ModelConfig& from, const ConversionSpec& to);

// Makes the output projection have a bias.
void SetOutputBias(ModelConfig& config);

// Throws LoadError if there is no such conversion, a size is out of range or a weight is not
// finite; `source` is the model's name for messages.
void CheckConversion(const Checkpoint& from, const ConversionSpec& to, const std::string& source);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_DECODER_CONVERSION_RULES_H_
