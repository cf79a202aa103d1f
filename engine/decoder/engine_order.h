// Order of heads and rotary pairs in attention weights.
#ifndef TRIPTYCH_ENGINE_DECODER_ENGINE_ORDER_H_
#define TRIPTYCH_ENGINE_DECODER_ENGINE_ORDER_H_

#include <cstdint>

#include "engine/decoder/weights.h"
#include "engine/model/config.h"

namespace triptych {

// Permutes the attention weights of a layer from the order of `stored` (head_grouping,
// rope_interleave) to the engine's: modular groups, interleaved pairs. Weights that are absent stay
// absent.
void ToEngineOrder(const ModelConfig& stored, int64_t layer, Weights& weights);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_DECODER_ENGINE_ORDER_H_
