// A model's weights, and how a checkpoint's files become them and they become files.
#ifndef TRIPTYCH_ENGINE_DECODER_WEIGHTS_H_
#define TRIPTYCH_ENGINE_DECODER_WEIGHTS_H_

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/checkpoint/open_checkpoint.h"
#include "engine/checkpoint/tensors/tensor_source.h"
#include "engine/model/config.h"
#include "engine/model/tensor_names.h"

namespace triptych {

// Tensors by their published names.
using Weights = std::map<std::string, at::Tensor>;

struct TensorSpec {
  std::string name;
  std::vector<int64_t> shape;
};

at::ScalarType ToScalarType(TensorFormat format);
at::ScalarType ToScalarType(CacheFormat format);
at::ScalarType ToScalarType(ComputeType type);

inline constexpr const char* kEmbeddingName = "model.embed_tokens.weight";
// The output matrix, where it is not the embedding.
inline constexpr const char* kOutputName = "lm_head.weight";
// The table of learned positions.
inline constexpr const char* kPositionsName = "model.embed_positions.weight";
// What the names of the tensors of a layer's attention begin with, "model.layers.N.self_attn.", and
// those of its MLP.
std::string AttentionPrefix(int64_t layer);
std::string MlpPrefix(int64_t layer);

// Every tensor of a model with this config, in the order of the forward pass.
std::vector<TensorSpec> ExpectedTensors(const ModelConfig& config);

// The number of elements of all weights.
int64_t ParameterCount(const ModelConfig& config);

// What they take in these formats. Of integers, vectors and positions are float32.
int64_t ParameterBytes(const ModelConfig& config, const WeightFormats& formats);

// The matrices that a checkpoint with the config's quantization stores as integers: those that
// serving multiplies by as they are, so not what MLA absorbs or transposes. None without one.
std::set<std::string> IntegerTensors(const ModelConfig& config);

struct Checkpoint {
  // With head_grouping modular and rope_interleave true: weights stored otherwise are permuted.
  // Without quantization: integers have become numbers.
  ModelConfig config;
  Weights weights;
};

// Where a model's weights come from, part by part, so that they need not all be held at once.
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  // The tensors whose names begin with `prefix`, by their names: of no layer, or of one, whose
  // attention is asked for as a whole. Each is asked for once. Throws LoadError.
  virtual Weights Take(const std::string& prefix) = 0;
};

// What all tensors of a model may be asked for by: each that is of no layer, then layer by layer.
std::vector<std::string> PartPrefixes(const ModelConfig& config);

// Weights that are all there, and are let go of as they are taken.
class HeldWeights final : public WeightSource {
 public:
  explicit HeldWeights(Weights weights) : weights_(std::move(weights)) {}

  Weights Take(const std::string& prefix) override;

 private:
  Weights weights_;
};

// The weights of a checkpoint's files, read when they are asked for.
class CheckpointReader final : public WeightSource {
 public:
  // Checks that each tensor is there and how it is stored. Weights become `format`; where that is
  // absent, nothing is rounded: what is stored in bfloat16 stays so, the rest becomes float32.
  // Throws LoadError.
  CheckpointReader(checkpoint::OpenedCheckpoint opened, std::optional<TensorFormat> format);

  // With head_grouping modular and rope_interleave true: weights stored otherwise are permuted.
  // Without quantization: integers have become numbers.
  const ModelConfig& config() const { return config_; }

  // Every weight is finite. They may be asked for one by one, and again. Throws also
  // std::invalid_argument unless `prefix` begins names of no layer's tensors, or LayerPrefix of one
  // begins it: "", "model.layers." and "model.layers.1" do not say which order heads and pairs
  // have.
  Weights Take(const std::string& prefix) override;

 private:
  ModelConfig stored_;
  ModelConfig config_;
  std::map<std::string, TensorSpec> specs_;  // of all tensors, by their names
  std::set<std::string> integers_;           // those that are stored as such
  std::shared_ptr<const checkpoint::TensorSource> tensors_;
  std::optional<TensorFormat> format_;
};

// All of them. Throws LoadError.
Checkpoint LoadCheckpoint(const std::filesystem::path& checkpoint, TensorFormat format);
Checkpoint ReadCheckpoint(checkpoint::OpenedCheckpoint opened, TensorFormat format);

// The model card in a checkpoint's directory.
inline constexpr const char* kCardFile = "README.md";

// Whether `model.safetensors` is there, or an index of shards.
bool HoldsModel(const std::filesystem::path& directory);

// Writes `config.json`, `model.safetensors` in the config's torch_dtype, or integers as its
// quantization says, and, unless `card` is empty, the model card `README.md`. A directory that is
// absent is made beside its place and renamed: it appears whole or not at all. In one that is
// there, be it empty, a mount or a symbolic link to one, each file appears whole or not at all,
// config.json last: without it there is no model. `others`: files beside, by their names. Throws
// std::runtime_error.
void SaveCheckpoint(const std::filesystem::path& directory, const ModelConfig& config,
                    const Weights& weights, const std::string& card = "",
                    const std::map<std::string, std::string>& others = {});

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_DECODER_WEIGHTS_H_
