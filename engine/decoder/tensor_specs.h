// Names and shapes of a model's tensors.
#ifndef TRIPTYCH_ENGINE_DECODER_TENSOR_SPECS_H_
#define TRIPTYCH_ENGINE_DECODER_TENSOR_SPECS_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "engine/base/formats.h"
#include "engine/model/config.h"
#include "engine/model/tensor_names.h"

namespace triptych {

struct TensorSpec {
  std::string name;
  std::vector<int64_t> shape;
};

inline constexpr const char* kEmbeddingName = "model.embed_tokens.weight";
// The output matrix, unless it is the embedding.
inline constexpr const char* kOutputName = "lm_head.weight";
// The table of learned positions.
inline constexpr const char* kPositionsName = "model.embed_positions.weight";
// Prefixes of the names of a layer's tensors: "model.layers.N.self_attn." and
// "model.layers.N.mlp.".
std::string AttentionPrefix(int64_t layer);
std::string MlpPrefix(int64_t layer);
// Prefixes within MlpPrefix, in a layer with experts: "experts.N." of each expert, and
// "shared_experts." of the MLP that every token takes.
std::string ExpertPrefix(int64_t layer, int64_t expert);
std::string SharedExpertsPrefix(int64_t layer);
// Whether a tensor is of a routed expert.
bool IsOfExpert(const std::string& name);
// The router [E, D] of a layer, its correction bias [E], and the gate [1, D] of the shared experts.
// They are vectors of numbers to every format: no format of integers rounds them.
std::string RouterName(int64_t layer);
std::string RouterBiasName(int64_t layer);
std::string SharedExpertGateName(int64_t layer);

// Every tensor of a model with this config, in the order of the forward pass.
std::vector<TensorSpec> ExpectedTensors(const ModelConfig& config);

// Prefixes that together name every tensor of a model once: the name of each tensor outside the
// layers, then LayerPrefix of each layer.
std::vector<std::string> PartPrefixes(const ModelConfig& config);

// The number of elements of all weights.
int64_t ParameterCount(const ModelConfig& config);
// The same without the routed experts that a token does not choose.
int64_t ActiveParameterCount(const ModelConfig& config);

// The bytes of all weights in these formats. With a format of integers, vectors and positions are
// float32.
int64_t ParameterBytes(const ModelConfig& config, const WeightFormats& formats);

// The matrices that a checkpoint with the config's quantization stores as integers: those that
// serving multiplies by unchanged, so not those that MLA absorbs or transposes. Empty without a
// quantization.
std::set<std::string> IntegerTensors(const ModelConfig& config);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_DECODER_TENSOR_SPECS_H_
