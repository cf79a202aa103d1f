// Table of all families of models.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_FAMILIES_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_FAMILIES_H_

#include "engine/checkpoint/config/family.h"
#include "engine/checkpoint/config/json_fields.h"

namespace triptych::checkpoint {

const Family& TriptychFamily();
// Takes a config's model_type and returns its family; Triptych's own if the field is absent and the
// file is not a published one. Throws LoadError, for families that are known with what they need.
const Family& FamilyOf(JsonFields& fields);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_FAMILIES_H_
