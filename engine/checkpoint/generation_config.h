// generation_config.json: how a published model is meant to be sampled. Torch-free.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_GENERATION_CONFIG_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_GENERATION_CONFIG_H_

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace triptych {

// What the file says of sampling, in the ranges of engine/base/request_limits.h; what is absent or
// null there is absent here. Its end tokens are the tokenizer's (LoadTokenizer).
struct GenerationConfig {
  std::optional<bool> do_sample;  // false: the most likely token, whatever the others say
  std::optional<float> temperature;
  std::optional<int32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
};

// Fields that are not known are ignored: the file has many, of what is not done here. `source` is
// the file's name for messages. Throws LoadError.
GenerationConfig ParseGenerationConfig(std::string_view json, const std::string& source);

// That of a checkpoint; nothing where there is no such file, as beside a GGUF file. Throws
// LoadError.
GenerationConfig ReadGenerationConfig(const std::filesystem::path& checkpoint);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_GENERATION_CONFIG_H_
