// Families of published models, each a file of its own. Torch-free.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_FAMILY_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_FAMILY_H_

#include <map>
#include <string>
#include <vector>

#include "engine/checkpoint/json_fields.h"
#include "engine/checkpoint/mapped_tensors.h"
#include "engine/model/config.h"

namespace triptych {

// Where a model's tensors are in what a family publishes.
struct TensorMap {
  std::map<std::string, TensorOrigin> origins;  // by the names of ExpectedTensors; others are there
  std::vector<std::string> left_out;            // what belongs to no model
};

struct Family {
  // Its config's fields, which it takes; those left over are refused. Throws LoadError.
  ModelConfig (*parse)(JsonFields& fields);
  // Null where tensors have the names of ExpectedTensors.
  TensorMap (*tensors)(const ModelConfig& config);
};

// The family of a config, by its model_type: Triptych's own if that is absent. Throws LoadError.
const Family& FamilyOf(JsonFields& fields);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_FAMILY_H_
