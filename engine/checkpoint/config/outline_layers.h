// Cache of each layer of a published model, by the fields that say so.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_OUTLINE_LAYERS_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_OUTLINE_LAYERS_H_

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/range.h"
#include "engine/checkpoint/config/json_fields.h"

namespace triptych::checkpoint {

enum class OutlineLayer {
  kFull,     // a row of every position
  kSliding,  // a row of the last positions
  kShared,   // it attends rows of an earlier layer
  kState,    // a state of a fixed size: Mamba, linear attention, convolutions
  kNothing,  // no attention: an MLP or experts alone
};

struct OutlineLayers {
  std::vector<OutlineLayer> layers;
  int64_t window = 0;  // of sliding layers

  int64_t Count(OutlineLayer kind) const;
};

// The first of a field's names that the file has; absent if it has none.
std::optional<std::string> NameIn(const JsonFields& fields,
                                  std::initializer_list<const char*> names);
// An integer by any of its names.
std::optional<int64_t> OptionalInt(JsonFields& fields, std::initializer_list<const char*> names,
                                   const Range<int64_t>& range);
int64_t RequiredInt(JsonFields& fields, std::initializer_list<const char*> names,
                    const Range<int64_t>& range);

// Throws LoadError, also for layers of other types.
OutlineLayers TakeOutlineLayers(JsonFields& fields, const std::string& model_type, int64_t layers);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_OUTLINE_LAYERS_H_
