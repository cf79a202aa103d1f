// Quantization of weights to integers with a scale.
#ifndef TRIPTYCH_ENGINE_KERNELS_QUANTIZATION_H_
#define TRIPTYCH_ENGINE_KERNELS_QUANTIZATION_H_

#include <cstdint>
#include <span>

#include "engine/base/formats.h"

namespace triptych::kernels {

// Rounds a group of weights to integers of the format, kInt8 (-127 to 127) or kInt4 (-8 to 7), and
// returns the bits of their scale in bfloat16: of the scales tried, the one with the least sum of
// squared errors. Weights that are already integers times a scale are reproduced exactly: under
// kInt8 if this function made them, under kInt4 always. Throws std::invalid_argument for other
// formats. REQUIRES: the weights are finite.
//   weights: 1 to kQuantizationGroup   integers: at least as many
uint16_t Quantize(WeightFormat format, std::span<const float> weights, std::span<int8_t> integers);

}  // namespace triptych::kernels

#endif  // TRIPTYCH_ENGINE_KERNELS_QUANTIZATION_H_
