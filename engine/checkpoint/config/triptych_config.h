// Parser of a config.json of model_type "triptych", whose fields engine/model/config.h lists.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_TRIPTYCH_CONFIG_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_TRIPTYCH_CONFIG_H_

#include "engine/checkpoint/config/json_fields.h"
#include "engine/model/config.h"

namespace triptych::checkpoint {

inline constexpr const char* kTriptychType = "triptych";

// `fields` are the file's, without model_type. The result is not validated. Throws LoadError.
ModelConfig ParseTriptychConfig(JsonFields& fields);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_TRIPTYCH_CONFIG_H_
