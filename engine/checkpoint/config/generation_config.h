// How a checkpoint's text is generated where a request says nothing. Torch-free.
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

// The file of a checkpoint's directory that says so. Its end tokens are the tokenizer's
// (engine/checkpoint/tokenizer/load_tokenizer.h).
inline constexpr const char* kGenerationConfigFile = "generation_config.json";

// Such a file's text that says which tokens end texts, too.
std::string WithEndTokens(Json config, const std::vector<int32_t>& ends);

// Absent is what the file does not say. Values are in the ranges of a request's fields
// (engine/base/request_limits.h), and mean what they do there.
struct GenerationConfig {
  std::optional<float> temperature;  // 0 where do_sample is false
  std::optional<int32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::optional<int32_t> max_new_tokens;
  // What the file says beside that would change the text, on one line that a terminal shows:
  // "num_beams = 4, typical_p = 0.9". Empty if there is none.
  std::string not_applied;
};

// Throws LoadError if a value is not allowed.
GenerationConfig ParseGenerationConfig(JsonFields fields);
// The config of a checkpoint, which says nothing where there is no such file, as beside GGUF files.
// Throws LoadError.
GenerationConfig ReadGenerationConfig(const std::filesystem::path& checkpoint);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_GENERATION_CONFIG_H_
