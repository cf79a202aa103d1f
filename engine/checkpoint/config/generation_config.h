// Reader of generation_config.json: a checkpoint's defaults for requests.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_GENERATION_CONFIG_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_GENERATION_CONFIG_H_

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/checkpoint/config/json_fields.h"

namespace triptych::checkpoint {

// The file in a checkpoint's directory. Its end tokens are read with the tokenizer
// (engine/checkpoint/tokenizer/load_tokenizer.h).
inline constexpr const char* kGenerationConfigFile = "generation_config.json";

// The text of `config` with these end tokens.
std::string WithEndTokens(Json config, const std::vector<int32_t>& ends);

// A value is absent if its field is, or if no request could have it. Values have the meaning and
// the ranges of a request's fields (engine/base/request_limits.h).
struct GenerationConfig {
  std::optional<float> temperature;  // 0 if do_sample is false
  std::optional<int32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::optional<int32_t> max_new_tokens;
  // Other fields of the file that would change the text, and values that no request could have, on
  // one printable line: "num_beams = 4, typical_p = 0.9". Empty if there are none.
  std::string not_applied;
};

GenerationConfig ParseGenerationConfig(JsonFields fields);
// The config of a checkpoint. All values are absent if there is no such file, and for GGUF files.
// Throws LoadError.
GenerationConfig ReadGenerationConfig(const std::filesystem::path& checkpoint);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_GENERATION_CONFIG_H_
