// What the config.json of a checkpoint means. Torch-free.
//
// Published configs say the same things in other fields; model_type says whose. A family of models
// is a function that turns its fields into a ModelConfig, which names the order of heads and of
// rotary pairs that its tensors have (head_grouping, rope_interleave), in a file of its own and a
// line of the table in config_file.cc.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_FILE_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_FILE_H_

#include <filesystem>
#include <string>
#include <string_view>

#include "engine/checkpoint/json_fields.h"
#include "engine/model/config.h"

namespace triptych {

// The file of a checkpoint's directory that holds its config.
inline constexpr const char* kConfigFile = "config.json";

// Reads and checks a config. `source` is the file's name for messages. Throws LoadError.
ModelConfig ParseModelConfig(std::string_view json, const std::string& source);
ModelConfig ParseModelConfig(JsonFields fields);
ModelConfig ReadModelConfig(const std::filesystem::path& file);

// The config as JSON, of model_type "triptych", that ParseModelConfig reads back to the same value.
std::string ToJson(const ModelConfig& config);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_FILE_H_
