// Families of published models: what their configs mean and what their tensors are called, each in
// a file of its own. Torch-free.
//
// A family's fields are of three kinds: those it takes; those that change nothing that is computed,
// which it ignores by name; and all others, which are refused.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_FAMILY_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_FAMILY_H_

#include <map>
#include <string>
#include <vector>

#include "engine/checkpoint/config/json_fields.h"
#include "engine/checkpoint/tensors/mapped_tensors.h"
#include "engine/checkpoint/tensors/tensor_source.h"
#include "engine/model/config.h"

namespace triptych::checkpoint {

// Where a model's tensors are in what is published.
struct TensorMap {
  std::map<std::string, TensorOrigin> origins;  // by the names of ExpectedTensors; others are there
  std::vector<std::string> left_out;            // what no model needs
};

struct Family {
  const char* model_type;
  // Takes or ignores what it knows of the fields of a config.json. Throws LoadError.
  ModelConfig (*parse)(JsonFields& fields);
  TensorMap (*tensors)(const ModelConfig& config, const TensorSource& published);
};

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_FAMILY_H_
