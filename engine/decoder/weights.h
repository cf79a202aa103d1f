// A model's weights as tensors of LibTorch, and the interface of their sources.
#ifndef TRIPTYCH_ENGINE_DECODER_WEIGHTS_H_
#define TRIPTYCH_ENGINE_DECODER_WEIGHTS_H_

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <utility>

#include "engine/base/formats.h"
#include "engine/model/config.h"

namespace triptych {

// Tensors by their published names.
using Weights = std::map<std::string, at::Tensor>;

at::ScalarType ToScalarType(TensorFormat format);
at::ScalarType ToScalarType(CacheFormat format);
at::ScalarType ToScalarType(ComputeType type);

struct Checkpoint {
  // With head_grouping modular and rope_interleave true: other orders are permuted when they are
  // read. Without quantization and served_formats: integers have become numbers.
  ModelConfig config;
  Weights weights;
};

// Source of a model's weights for packing: tensors in the engine's order and of its formats, taken
// part by part, so that one part is held at a time. (checkpoint::TensorSource, below it, gives the
// bytes of single tensors as they are stored, and knows nothing of LibTorch.)
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  // The tensors whose names begin with `prefix`, by name: outside the layers, or of one layer,
  // whose attention is taken as a whole. Each tensor is taken once. Calls come one at a time, from
  // any thread. Throws LoadError.
  virtual Weights Take(const std::string& prefix) = 0;
};

// Removes the weights whose names begin with `prefix`, and returns them.
Weights TakePrefixed(Weights& weights, const std::string& prefix);

// Weights that are all in memory. A weight is released when it has been taken.
class WeightsInMemory final : public WeightSource {
 public:
  explicit WeightsInMemory(Weights weights) : weights_(std::move(weights)) {}

  Weights Take(const std::string& prefix) override { return TakePrefixed(weights_, prefix); }

 private:
  Weights weights_;
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_DECODER_WEIGHTS_H_
