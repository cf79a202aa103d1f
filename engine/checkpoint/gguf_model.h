// Config and tensors of the model in a GGUF file.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_GGUF_MODEL_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_GGUF_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>

#include "engine/checkpoint/config/config_file.h"
#include "engine/checkpoint/config/json_fields.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/tensors/tensor_source.h"
#include "engine/model/config.h"

namespace triptych::checkpoint {

// The metadata as fields of the config.json of the model's family, with model_type. Messages name
// the metadata's keys. Architectures are those of the table in gguf_model.cc; unknown keys of
// theirs are refused. torch_dtype is the dtype of most bytes, or bfloat16 for blocks of integers.
// Throws LoadError.
JsonFields GgufConfigFields(const GgufFile& file);

// The validated config of those fields and of the rest of the file: the order of rotary pairs, the
// factors of their frequencies, biases, and the weight formats nearest to the file's. Throws
// LoadError.
PublishedConfig ReadGgufConfig(const GgufFile& file);

// The file's tensors by the names of ExpectedTensors, blocks of integers decoded to F32. Throws
// LoadError.
std::unique_ptr<const TensorSource> MapGgufTensors(std::shared_ptr<const GgufFile> file,
                                                   const ModelConfig& config);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_GGUF_MODEL_H_
