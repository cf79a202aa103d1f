// Source of weights that are converted layer by layer as they are taken.
#ifndef TRIPTYCH_ENGINE_DECODER_CONVERTED_SOURCE_H_
#define TRIPTYCH_ENGINE_DECODER_CONVERTED_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "engine/base/formats.h"
#include "engine/decoder/decoupled_keys.h"
#include "engine/decoder/read_weights.h"
#include "engine/decoder/weights.h"
#include "engine/model/config.h"
#include "engine/model/conversion_spec.h"

namespace triptych {

// About the bytes that a ConvertedSource takes at most to convert a layer of such a model: its
// attention, with a few copies in float64. The keys of all layers and their mixes, which it holds
// before the first layer is converted, take the room of layers that are not packed yet.
int64_t ConversionBytes(const ModelConfig& from);

// The weights that Convert makes of a checkpoint, rounded to a format.
class ConvertedSource final : public WeightSource {
 public:
  // Reads the keys of all layers if they are rotated, and converts the first layer. Throws what
  // Convert throws. REQUIRES: `from` gives float32.
  ConvertedSource(std::unique_ptr<CheckpointReader> from, const ConversionSpec& to,
                  TensorFormat format, const std::string& source);

  const ModelConfig& config() const { return config_; }

  // Throws LoadError, also for a rounded weight that is not finite.
  Weights Take(const std::string& prefix) override;

 private:
  // A model of this layer only, whose tensors have the layer's names.
  Checkpoint ConvertLayer(int64_t layer, const Weights& attention);

  std::unique_ptr<CheckpointReader> from_;
  const ConversionSpec to_;
  const TensorFormat format_;
  const std::string source_;
  DecoupledKeys decoupled_;  // of the layers that are not converted yet
  Weights first_;            // the attention of the first layer, until it is taken
  ModelConfig config_;
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_DECODER_CONVERTED_SOURCE_H_
