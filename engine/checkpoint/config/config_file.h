// What the config.json of a checkpoint means. Torch-free.
//
// Published configs say the same things in other fields; model_type says whose. Their ModelConfig
// names the order of heads and of rotary pairs that their tensors have (head_grouping,
// rope_interleave).
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_CONFIG_FILE_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_CONFIG_FILE_H_

#include <filesystem>
#include <string>
#include <string_view>

#include "engine/checkpoint/config/family.h"
#include "engine/checkpoint/config/json_fields.h"
#include "engine/model/config.h"

namespace triptych::checkpoint {

// The file of a checkpoint's directory that holds its config.
inline constexpr const char* kConfigFile = "config.json";

struct PublishedConfig {
  ModelConfig config;
  const Family* family;            // never null
  bool window_is_context = false;  // a sliding window ends the context before what is published
};

// Reads and checks a config. `source` is the file's name for messages. Throws LoadError.
ModelConfig ParseModelConfig(std::string_view json, const std::string& source);
PublishedConfig ParsePublishedConfig(JsonFields fields);
PublishedConfig ReadPublishedConfig(const std::filesystem::path& file);
ModelConfig ReadModelConfig(const std::filesystem::path& file);

// The config as JSON, of model_type "triptych", that ParseModelConfig reads back to the same value.
std::string ToJson(const ModelConfig& config);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_CONFIG_FILE_H_
