// Interface of a family of published models: the meaning of its config and its tensors' names.
//
// A family takes some fields, ignores by name those that do not change the computation, and refuses
// all others. Each family has a file of its own.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_FAMILY_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_FAMILY_H_

#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/checkpoint/config/json_fields.h"
#include "engine/checkpoint/tensors/mapped_tensors.h"
#include "engine/checkpoint/tensors/tensor_source.h"
#include "engine/model/config.h"

namespace triptych::checkpoint {

// The places of a model's tensors in its published files.
struct TensorMap {
  // By the names of ExpectedTensors. Tensors that are not in the map have these names already.
  std::map<std::string, TensorOrigin> origins;
  std::vector<std::string> left_out;    // published tensors that no model needs
  std::vector<std::string> notes = {};  // about them, one line each, for the log
};

// A field of ModelConfig and its name in a family's config.json, or what it is computed from.
struct FieldName {
  const char* field;
  const char* published;
};

struct Family {
  const char* model_type;
  // Takes or ignores the fields of a config.json that the family knows. The result is not
  // validated. Throws LoadError.
  ModelConfig (*parse)(JsonFields& fields);
  TensorMap (*tensors)(const ModelConfig& config, const TensorSource& published);
  std::span<const FieldName> names = {};  // where they differ from ModelConfig's
  bool quantized = false;                 // files may have a PublishedQuantization
};

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_FAMILY_H_
