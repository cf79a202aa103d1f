#include "engine/decoder/weights.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "engine/base/file.h"
#include "engine/base/quoted.h"
#include "engine/checkpoint/config_file.h"
#include "engine/checkpoint/open_tensors.h"
#include "engine/checkpoint/safetensors.h"

namespace triptych {
namespace {

const char* SafetensorsName(TensorFormat format) {
  switch (format) {
    case TensorFormat::kFloat32:
      return "F32";
    case TensorFormat::kBFloat16:
      return "BF16";
  }
  return "";
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::ostringstream text;
  text << '[';
  for (size_t i = 0; i < shape.size(); ++i) text << (i > 0 ? ", " : "") << shape[i];
  text << ']';
  return text.str();
}

// Whether no element's exponent is all ones, which is what infinities and NaN have.
template <typename Bits>
bool AllFinite(std::span<const Bits> elements, Bits exponent) {
  Bits found = 0;
  for (const Bits bits : elements) found |= static_cast<Bits>((bits & exponent) == exponent);
  return found == 0;
}

// tensor: contiguous
bool AllFinite(const at::Tensor& tensor, TensorFormat format) {
  const auto count = static_cast<size_t>(tensor.numel());
  switch (format) {
    case TensorFormat::kFloat32:
      return AllFinite<uint32_t>({static_cast<const uint32_t*>(tensor.data_ptr()), count},
                                 0x7f800000);
    case TensorFormat::kBFloat16:
      return AllFinite<uint16_t>({static_cast<const uint16_t*>(tensor.data_ptr()), count}, 0x7f80);
  }
  return false;
}

at::Tensor ReadTensor(const TensorSource& source, const TensorSpec& spec, TensorFormat format) {
  const std::string where = source.name() + ": tensor " + spec.name + " ";
  const StoredTensor* const stored = source.Find(spec.name);
  if (stored == nullptr) throw LoadError(where + "is missing");
  if (stored->shape != spec.shape) {
    throw LoadError(where + "has shape " + Printable(ShapeText(stored->shape)) +
                    "; the config needs " + ShapeText(spec.shape));
  }
  at::ScalarType type;
  if (stored->dtype == "F32") {
    type = at::kFloat;
  } else if (stored->dtype == "BF16") {
    type = at::kBFloat16;
  } else if (stored->dtype == "F16") {
    type = at::kHalf;
  } else {
    throw LoadError(where + "has dtype " + Printable(stored->dtype) + "; allowed: F32, BF16, F16");
  }
  const at::Tensor read = at::empty(stored->shape, type);
  source.Read(spec.name, {static_cast<std::byte*>(read.data_ptr()), read.nbytes()});
  at::Tensor tensor = read.to(ToScalarType(format));
  if (!AllFinite(tensor, format)) {
    throw LoadError(where + "holds numbers that are not finite in " + std::string(Name(format)) +
                    "; allowed: finite ones");
  }
  return tensor;
}

// Rows (i, i + d/2) of each head become rows (2i, 2i+1). rows: [heads * d, ...].
at::Tensor InterleaveRotaryRows(const at::Tensor& rows, int64_t d) {
  return rows.unflatten(0, {-1, 2, d / 2}).transpose(1, 2).flatten(0, 2).contiguous();
}

// Applies InterleaveRotaryRows to the last d_R of every `width` rows.
at::Tensor InterleaveTailRows(const at::Tensor& rows, int64_t width, int64_t d_rope) {
  const at::Tensor heads = rows.unflatten(0, {-1, width});
  const at::Tensor tail = heads.narrow(1, width - d_rope, d_rope);
  return at::cat({heads.narrow(1, 0, width - d_rope),
                  InterleaveRotaryRows(tail.flatten(0, 1), d_rope).view_as(tail)},
                 1)
      .flatten(0, 1);
}

void InterleaveRotary(const ModelConfig& config, Weights& weights) {
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string attention = AttentionPrefix(layer);
    const auto permute = [&](const std::string& name, int64_t width, int64_t d_rope) {
      for (const char* part : {".weight", ".bias"}) {
        const auto found = weights.find(attention + name + part);
        if (found == weights.end()) continue;
        found->second = InterleaveTailRows(found->second, width, d_rope);
      }
    };
    if (config.attention == AttentionKind::kMla) {
      permute("q_proj", config.QueryDim(), config.qk_rope_head_dim);
      permute("kv_a_proj_with_mqa", config.kv_lora_rank[layer] + config.qk_rope_head_dim,
              config.qk_rope_head_dim);
    } else {
      permute("q_proj", config.head_dim, config.head_dim);
      permute("k_proj", config.head_dim, config.head_dim);
    }
  }
}

// Contiguous head g * (H/G) + j becomes modular head j * G + g
// (engine/definitions.md#contiguous-grouping).
void PermuteContiguousHeads(const ModelConfig& config, Weights& weights) {
  const int64_t groups = config.num_key_value_heads;
  const int64_t shared = config.num_attention_heads / groups;
  if (shared == 1) return;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string attention = AttentionPrefix(layer);
    for (const char* name : {"q_proj.weight", "q_proj.bias"}) {
      const auto found = weights.find(attention + name);
      if (found == weights.end()) continue;
      found->second = found->second.unflatten(0, {groups, shared, config.head_dim})
                          .transpose(0, 1)
                          .flatten(0, 2)
                          .contiguous();
    }
    at::Tensor& o = weights.at(attention + "o_proj.weight");
    o = o.unflatten(1, {groups, shared, config.head_dim}).transpose(1, 2).flatten(1).contiguous();
  }
}

// The weights and the config are whole on the disk before the first takes its place. A config that
// is there already goes before, so that it never describes the new weights.
void WriteFiles(const std::filesystem::path& directory, const ModelConfig& config,
                const Weights& weights, const std::string& card) {
  for (const char* file : {kWeightsFile, kConfigFile}) {
    if (std::filesystem::is_directory(directory / file)) {
      throw std::runtime_error((directory / file).string() + ": cannot be written: Is a directory");
    }
  }
  std::vector<at::Tensor> kept;  // what `tensors` points into
  std::vector<SafetensorsTensor> tensors;
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    const at::Tensor& tensor = kept.emplace_back(
        weights.at(spec.name).detach().to(ToScalarType(config.torch_dtype)).contiguous());
    tensors.push_back({spec.name,
                       SafetensorsName(config.torch_dtype),
                       spec.shape,
                       {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()}});
  }
  StagedFile weights_file(directory / kWeightsFile);
  WriteSafetensors(weights_file, tensors, {{"format", "pt"}});
  weights_file.Sync();
  StagedFile config_file(directory / kConfigFile);
  config_file.Write(ToJson(config));
  config_file.Sync();
  if (!card.empty()) ReplaceFile(directory / kCardFile, card);
  std::filesystem::remove(directory / kConfigFile);
  weights_file.Commit();
  config_file.Commit();
}

}  // namespace

at::ScalarType ToScalarType(TensorFormat format) {
  switch (format) {
    case TensorFormat::kFloat32:
      return at::kFloat;
    case TensorFormat::kBFloat16:
      return at::kBFloat16;
  }
  return {};
}

at::ScalarType ToScalarType(CacheFormat format) {
  switch (format) {
    case CacheFormat::kFloat32:
      return at::kFloat;
    case CacheFormat::kBFloat16:
      return at::kBFloat16;
    case CacheFormat::kInt8:
      return at::kChar;
  }
  return {};
}

at::ScalarType ToScalarType(ComputeType type) {
  switch (type) {
    case ComputeType::kFloat32:
      return at::kFloat;
    case ComputeType::kBFloat16:
      return at::kBFloat16;
    case ComputeType::kFloat64:
      return at::kDouble;
  }
  return {};
}

std::string LayerPrefix(int64_t layer) { return "model.layers." + std::to_string(layer) + "."; }

std::string AttentionPrefix(int64_t layer) { return LayerPrefix(layer) + "self_attn."; }

std::vector<TensorSpec> ExpectedTensors(const ModelConfig& config) {
  std::vector<TensorSpec> specs;
  const auto add = [&](std::string name, std::vector<int64_t> shape) {
    specs.push_back({std::move(name), std::move(shape)});
  };
  const auto add_linear = [&](const std::string& name, int64_t out, int64_t in, bool bias) {
    add(name + ".weight", {out, in});
    if (bias) add(name + ".bias", {out});
  };
  const int64_t width = config.hidden_size;
  const int64_t heads = config.num_attention_heads;
  const int64_t head_dim = config.head_dim;
  const auto add_norm = [&](const std::string& name) {
    add(name + ".weight", {width});
    if (config.norm_bias) add(name + ".bias", {width});
  };

  add("model.embed_tokens.weight", {config.vocab_size, width});
  if (config.position_embedding == PositionEmbedding::kLearned) {
    add(kPositionsName, {config.max_position_embeddings, width});
  }
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string prefix = LayerPrefix(layer);
    const std::string attention = AttentionPrefix(layer);
    const bool bias = config.attention_bias;
    add_norm(prefix + "input_layernorm");
    add_linear(attention + "q_proj", heads * config.QueryDim(), width, bias);
    if (config.attention == AttentionKind::kMla) {
      const int64_t rank = config.kv_lora_rank[layer];
      add_linear(attention + "kv_a_proj_with_mqa", rank + config.qk_rope_head_dim, width, false);
      if (config.kv_a_layernorm) add(attention + "kv_a_layernorm.weight", {rank});
      add_linear(attention + "kv_b_proj", heads * 2 * head_dim, rank, false);
    } else {
      add_linear(attention + "k_proj", config.num_key_value_heads * head_dim, width, bias);
      add_linear(attention + "v_proj", config.num_key_value_heads * head_dim, width, bias);
    }
    add_linear(attention + "o_proj", width, heads * head_dim, bias);
    add_norm(prefix + "post_attention_layernorm");
    if (config.mlp == MlpKind::kSwiglu) {
      add_linear(prefix + "mlp.gate_proj", config.intermediate_size, width, config.mlp_bias);
    }
    add_linear(prefix + "mlp.up_proj", config.intermediate_size, width, config.mlp_bias);
    add_linear(prefix + "mlp.down_proj", width, config.intermediate_size, config.mlp_bias);
  }
  add_norm("model.norm");
  if (!config.tie_word_embeddings) add("lm_head.weight", {config.vocab_size, width});
  return specs;
}

int64_t ParameterCount(const ModelConfig& config) {
  int64_t count = 0;
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    count += std::accumulate(spec.shape.begin(), spec.shape.end(), int64_t{1}, std::multiplies<>());
  }
  return count;
}

int64_t ParameterBytes(const ModelConfig& config, WeightFormat format) {
  int64_t bytes = 0;
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    const bool matrix = spec.shape.size() == 2 && spec.name != kPositionsName;
    const int64_t rows = spec.shape.size() == 2 ? spec.shape[0] : 1;
    bytes += WeightBytes(IsInteger(format) && !matrix ? WeightFormat::kFloat32 : format,
                         spec.shape.back(), rows);
  }
  return bytes;
}

Checkpoint LoadCheckpoint(const std::filesystem::path& directory, TensorFormat format) {
  Checkpoint checkpoint{.config = ReadModelConfig(directory / kConfigFile), .weights = {}};
  ModelConfig& config = checkpoint.config;
  const std::unique_ptr<const TensorSource> source = OpenTensors(directory);

  for (const TensorSpec& spec : ExpectedTensors(config)) {
    checkpoint.weights.emplace(spec.name, ReadTensor(*source, spec, format));
  }
  for (const std::string& name : source->TensorNames()) {
    if (!checkpoint.weights.contains(name)) {
      throw LoadError(source->name() + ": tensor " + Printable(name) +
                      " does not belong to a model with this config");
    }
  }

  if (config.position_embedding == PositionEmbedding::kRope && !config.rope_interleave) {
    InterleaveRotary(config, checkpoint.weights);
    config.rope_interleave = true;
  }
  if (config.head_grouping == HeadGrouping::kContiguous) {
    PermuteContiguousHeads(config, checkpoint.weights);
    config.head_grouping = HeadGrouping::kModular;
  }
  return checkpoint;
}

bool HoldsModel(const std::filesystem::path& directory) {
  return std::filesystem::exists(directory / kWeightsFile);
}

void SaveCheckpoint(const std::filesystem::path& directory, const ModelConfig& config,
                    const Weights& weights, const std::string& card) {
  CheckOutputDirectory(directory);
  if (std::filesystem::exists(directory)) {
    WriteFiles(directory, config, weights, card);
    return;
  }
  std::filesystem::path place = directory;
  if (!place.has_filename()) place = place.parent_path();  // "DIR/"
  if (place.has_parent_path()) std::filesystem::create_directories(place.parent_path());
  const std::filesystem::path beside = MakeUniqueDirectory(place);
  try {
    WriteFiles(beside, config, weights, card);
    std::filesystem::rename(beside, place);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove_all(beside, ignored);
    throw;
  }
}

}  // namespace triptych
