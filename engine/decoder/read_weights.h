// Reader of a checkpoint's weights.
#ifndef TRIPTYCH_ENGINE_DECODER_READ_WEIGHTS_H_
#define TRIPTYCH_ENGINE_DECODER_READ_WEIGHTS_H_

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "engine/base/formats.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/checkpoint/tensors/tensor_source.h"
#include "engine/decoder/tensor_specs.h"
#include "engine/decoder/weights.h"
#include "engine/model/config.h"

namespace triptych {

// Reads the weights of a checkpoint's files when they are taken.
class CheckpointReader final : public WeightSource {
 public:
  // Checks that each tensor is there, its shape and its dtype. Weights become `format`; without a
  // `format` nothing is rounded: bfloat16 stays bfloat16, every other dtype becomes float32.
  // Throws LoadError.
  CheckpointReader(checkpoint::OpenedCheckpoint opened, std::optional<TensorFormat> format);

  // With head_grouping modular and rope_interleave true: other orders are permuted when they are
  // read. Without quantization and served_formats: integers have become numbers.
  const ModelConfig& config() const { return config_; }

  // Every weight is finite. They may be taken one by one, and again. Also throws
  // std::invalid_argument for a prefix of more than one layer's tensors, whose order of heads and
  // pairs would be unknown: "", "model.layers." and "model.layers.1".
  Weights Take(const std::string& prefix) override;

 private:
  ModelConfig stored_;
  ModelConfig config_;
  std::map<std::string, TensorSpec> specs_;  // of all tensors, by name
  std::set<std::string> integers_;           // names of tensors that are stored as integers
  std::shared_ptr<const checkpoint::TensorSource> tensors_;
  std::optional<TensorFormat> format_;
};

// All weights at once. Throws LoadError.
Checkpoint LoadCheckpoint(const std::filesystem::path& checkpoint, TensorFormat format);
Checkpoint ReadCheckpoint(checkpoint::OpenedCheckpoint opened, TensorFormat format);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_DECODER_READ_WEIGHTS_H_
