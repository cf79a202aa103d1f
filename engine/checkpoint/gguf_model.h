// The model in a GGUF file: what its metadata and its tensors' names mean. Torch-free.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_GGUF_MODEL_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_GGUF_MODEL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "engine/checkpoint/config/json_fields.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/tensors/tensor_source.h"
#include "engine/model/config.h"

namespace triptych::checkpoint {

// The fields of the config.json that the model's family publishes, model_type among them, out of
// the metadata, whose keys messages name. Architectures are llama, which Mistral's models are too,
// qwen2, qwen3 and gpt2; keys of theirs that are not known are refused. torch_dtype is that of most
// bytes, and bfloat16 where that is Q8_0. Throws LoadError.
JsonFields GgufConfigFields(const GgufFile& file);

// The config that those fields are, with what else the file says: the order of its rotary pairs,
// factors of their frequencies, biases. Throws LoadError.
ModelConfig ReadGgufConfig(const GgufFile& file);

// The file's tensors by the names of ExpectedTensors. Throws LoadError.
std::unique_ptr<const TensorSource> MapGgufTensors(std::shared_ptr<const GgufFile> file,
                                                   const ModelConfig& config);

// Of a chat template, wherever it is.
inline constexpr uint64_t kMaxTemplateBytes = uint64_t{1} << 20;

// The Jinja template that conversations are rendered by, if the file has one. Throws LoadError.
std::optional<std::string> GgufChatTemplate(const GgufFile& file);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_GGUF_MODEL_H_
