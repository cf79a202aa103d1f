// All families of models. Torch-free.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_FAMILIES_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_FAMILIES_H_

#include "engine/checkpoint/config/family.h"
#include "engine/checkpoint/config/json_fields.h"

namespace triptych::checkpoint {

const Family& TriptychFamily();
// The family of a config by its model_type, which is taken; Triptych's own if it is absent. Throws
// LoadError.
const Family& FamilyOf(JsonFields& fields);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_FAMILIES_H_
