// Cache and weights of a model by its config.json alone, of any family.
//
// Families differ in the names of a few fields, and in which layers cache what. This reads those
// fields and ignores all others; a model that is served is read by its own family as well
// (config_file.h), and tests hold the two equal.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_MODEL_OUTLINE_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_MODEL_OUTLINE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/checkpoint/config/json_fields.h"
#include "engine/model/cached_layers.h"

namespace triptych::checkpoint {

// The most weights of an outline: beyond it sums are not exact.
inline constexpr double kMostWeights = 0x1p53;

// Weights of all matrices. Norms and biases are left out: a part in a thousand or less.
struct OutlineWeights {
  double always = 0;     // that every token uses, besides the table of the embedding
  double embedding = 0;  // the table, if it is not the output matrix
  double expert = 0;     // of one routed expert in each layer that has them
  int64_t experts = 0;   // in such a layer; 0: there are none
  int64_t chosen = 0;    // by a token
  double All() const { return always + embedding + expert * static_cast<double>(experts); }
  double Active() const { return always + embedding + expert * static_cast<double>(chosen); }
};

struct ModelOutline {
  std::string model_type = {};            // "" if the file has none
  std::vector<CachedLayers> cached;       // empty: no layer caches positions
  std::vector<CachedLayers> as_mha;       // the attending layers, if every head had its own row
  std::optional<int64_t> context;         // absent: not in the file
  std::optional<OutlineWeights> weights;  // absent: see `unknown`
  // Layers with a state of a fixed size for each sequence, and that size; absent: see `unknown`.
  int64_t state_layers = 0;
  std::optional<int64_t> state_elements;
  std::string state_formula;         // "24 layers x (...)", if there is a size
  std::vector<std::string> facts;    // sentences about layers that cache less, and parts left out
  std::vector<std::string> unknown;  // sentences about what the file does not tell
};

// Reads the fields of the language model: those of the file, or of its "text_config". Throws
// LoadError with the field, its value and what is allowed.
ModelOutline ParseModelOutline(JsonFields fields);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_CONFIG_MODEL_OUTLINE_H_
