// Small random models: every kind of attention and every option of the config.
#ifndef TRIPTYCH_TESTS_SUPPORT_RANDOM_MODEL_H_
#define TRIPTYCH_TESTS_SUPPORT_RANDOM_MODEL_H_

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "engine/decoder/weights.h"
#include "engine/model/config.h"
#include "tests/support/oracle.h"

namespace triptych {

struct NamedConfig {
  std::string name;  // letters and digits only
  ModelConfig config;
};
inline void PrintTo(const NamedConfig& named, std::ostream* os) { *os << named.name; }

// Decoders that together use every option, with widths that are not multiples of a vector.
std::vector<NamedConfig> EveryOption();

// The same of mixtures of experts.
std::vector<NamedConfig> EveryOptionOfExperts();

// One small decoder of each kind, with the byte tokenizer's vocabulary.
std::vector<NamedConfig> EachKind();
ModelConfig SmallModel(AttentionKind kind);
// SmallModel(kind) with 6 experts in each of its 2 layers, of which a token chooses 2, and a shared
// MLP.
ModelConfig SmallExpertsModel(AttentionKind kind);

// Widths of key and value heads.
struct HeadShape {
  int64_t width;   // D
  int64_t heads;   // H
  int64_t groups;  // G
  int64_t d;

  int64_t full_rank() const { return std::min(2 * groups * d, width); }
};
void PrintTo(const HeadShape& shape, std::ostream* os);

// Random shapes, with odd widths, d != D/H, MHA and MQA among them.
std::vector<HeadShape> RandomHeadShapes(int count, uint64_t seed);
// A small decoder with these heads.
ModelConfig SmallModel(const HeadShape& shape);

// float64 weights for ExpectedTensors(config), scaled: matrices by 1/sqrt(fan_in), norm weights
// around 1. The same on every platform.
Weights RandomWeights(const ModelConfig& config, uint64_t seed);
Weights Cast(const Weights& weights, at::ScalarType dtype);
oracle::Arrays ToArrays(const Weights& weights);

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_SUPPORT_RANDOM_MODEL_H_
