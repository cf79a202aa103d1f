// Small checkpoints of every published family, in published form.
#ifndef TRIPTYCH_TESTS_SUPPORT_PUBLISHED_CHECKPOINTS_H_
#define TRIPTYCH_TESTS_SUPPORT_PUBLISHED_CHECKPOINTS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

#include "tests/support/published_models.h"

namespace triptych::published {

struct NamedConfig {
  std::string name;  // letters and digits only
  Json config;
};
inline void PrintTo(const NamedConfig& named, std::ostream* os) { *os << named.name; }

// Configs with at most 40 positions that together use everything listed in published_models.h.
std::vector<NamedConfig> EveryFamily();

// The tensors of a model with this config: matrices scaled by 1/sqrt(fan_in), norm weights around
// 1, biases around 0, so that every tensor affects the logits, which are about 1. The same on every
// platform.
Tensors RandomTensors(const Json& config, uint64_t seed, at::ScalarType dtype = at::kFloat);

// Adds the buffers of older files: gpt2's masks, llama's rotary frequencies.
void AddBuffers(const Json& config, Tensors& tensors);

// gpt2's tensors, renamed with the prefix `transformer.`.
Tensors WithPrefix(const Tensors& tensors);

// Writes config.json and model.safetensors, or a number of shards and model.safetensors.index.json,
// into an existing directory. Throws std::runtime_error.
void WriteCheckpoint(const std::filesystem::path& directory, const Json& config,
                     const Tensors& tensors, int shards = 1);

}  // namespace triptych::published

#endif  // TRIPTYCH_TESTS_SUPPORT_PUBLISHED_CHECKPOINTS_H_
