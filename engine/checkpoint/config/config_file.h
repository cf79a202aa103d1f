// Reader and writer of a checkpoint's config.json.
//
// model_type names the family, whose fields become a ModelConfig. The ModelConfig of a published
// family names the order of heads and of rotary pairs in its tensors (head_grouping,
// rope_interleave).
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_CONFIG_FILE_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_CONFIG_FILE_H_

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "engine/checkpoint/config/family.h"
#include "engine/checkpoint/config/json_fields.h"
#include "engine/checkpoint/config/published_quantization.h"
#include "engine/model/config.h"
#include "engine/model/validate_config.h"

namespace triptych::checkpoint {

// The config's file in a checkpoint's directory.
inline constexpr const char* kConfigFile = "config.json";
inline constexpr const char* kMistralConfigFile = "params.json";  // Mistral's own form

struct PublishedConfig {
  ModelConfig config;
  const Family* family;  // never null
  // Origin of the context: a field's name, or words that name the fields.
  std::string context_origin = {};
  std::optional<PublishedQuantization> quantization = {};
};

// Read and validate a config. `source` is the file's name for messages. Throw LoadError.
ModelConfig ParseModelConfig(std::string_view json, const std::string& source);
PublishedConfig ParsePublishedConfig(JsonFields fields);
PublishedConfig ReadPublishedConfig(const std::filesystem::path& file);
ModelConfig ReadModelConfig(const std::filesystem::path& file);

// The two steps of ParsePublishedConfig, for a source that changes the config before Validate:
// takes all fields, and names where the config comes from. Throws LoadError.
PublishedConfig TakePublishedConfig(JsonFields& fields);
ConfigOrigin OriginOf(const Family& family, const JsonFields& fields);

// The forms of a config.json that are written: model_type "triptych", and "deepseek_v3" without
// experts.
enum class ConfigForm { kTriptych, kDeepseek };
std::string_view Name(ConfigForm form);  // triptych, deepseek

// The config as JSON. ParseModelConfig reads it back to the same value; deepseek_v3 has no
// training_texts. REQUIRES, for kDeepseek: as DeepseekV3Fields (latent_families.h).
std::string ToJson(const ModelConfig& config, ConfigForm form = ConfigForm::kTriptych);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_CONFIG_FILE_H_
