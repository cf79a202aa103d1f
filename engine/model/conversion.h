// What to make of a checkpoint. Torch-free.
#ifndef TRIPTYCH_ENGINE_MODEL_CONVERSION_H_
#define TRIPTYCH_ENGINE_MODEL_CONVERSION_H_

#include <cstdint>

#include "engine/model/config.h"

namespace triptych {

struct Conversion {
  AttentionKind attention = AttentionKind::kMla;
  int64_t groups = 0;  // GQA: G
  int64_t rank = 0;    // MLA: r, the same in every layer; 0 for the full rank, which loses nothing
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_MODEL_CONVERSION_H_
