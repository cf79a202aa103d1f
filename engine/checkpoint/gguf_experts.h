// Experts and latent attention in GGUF: keys and tensors.
// Format: https://github.com/ggml-org/llama.cpp, convert_hf_to_gguf.py and
// gguf-py/gguf/constants.py.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_GGUF_EXPERTS_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_GGUF_EXPERTS_H_

#include <map>
#include <memory>
#include <string>

#include "engine/base/json.h"
#include "engine/checkpoint/config/json_fields.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/tensors/mapped_tensors.h"
#include "engine/checkpoint/tensors/tensor_source.h"
#include "engine/model/config.h"

namespace triptych::checkpoint {

// The functions below take keys of an architecture, which begin with `prefix`, into the fields of a
// published `config`, and add the fields' names to `names`. They throw LoadError.

// Whether a file's layers have experts.
bool HasGgufExperts(const GgufFile& file, const std::string& prefix);

// The keys of experts of llama's kind: those of mixtral, qwen2_moe, qwen3_moe, olmoe and
// granitemoe. REQUIRES: config has model_type.
void TakeGgufExperts(JsonFields& keys, const std::string& prefix, Json& config,
                     std::map<std::string, std::string>& names);

// The keys of latent attention, and those of experts if the architecture is deepseek2. Sets
// model_type. REQUIRES: config has num_attention_heads.
void TakeGgufLatents(const GgufFile& file, JsonFields& keys, const std::string& prefix,
                     Json& config, std::map<std::string, std::string>& names);

// Adds the origins of a layer's experts, router and shared experts.
//   from, to: prefixes of the layer's tensors in the file and in the engine
void AddGgufExperts(const GgufFile& file, const ModelConfig& config, const std::string& from,
                    const std::string& to, std::map<std::string, TensorOrigin>& origins);

// The tensors of `numbers`, where a layer's attn_k_b and attn_v_b are one attn_kv_b, as in older
// files. Throws LoadError if they have other shapes than the config.
std::shared_ptr<const TensorSource> JoinGgufLatents(std::shared_ptr<const TensorSource> numbers,
                                                    const ModelConfig& config);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_GGUF_EXPERTS_H_
