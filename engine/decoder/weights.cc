#include "engine/decoder/weights.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include "engine/base/file.h"
#include "engine/base/quoted.h"
#include "engine/checkpoint/config/config_file.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/checkpoint/tensors/integer_rows.h"
#include "engine/checkpoint/tensors/open_tensors.h"
#include "engine/checkpoint/tensors/safetensors.h"
#include "engine/checkpoint/tensors/safetensors_index.h"
#include "engine/model/latent_shape.h"

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

bool IsEmbedding(const TensorSpec& spec) {
  return spec.name == kEmbeddingName || spec.name == kOutputName;
}

// Whether serving multiplies by it, or by what becomes of it.
bool IsMatrix(const TensorSpec& spec) {
  return spec.shape.size() == 2 && spec.name != kPositionsName;
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

struct StoredType {
  const char* name;     // as StoredTensor has it
  at::ScalarType type;  // as which it is read
};
constexpr StoredType kNumbers[] = {{"F32", at::kFloat},
                                   {"BF16", at::kBFloat16},
                                   {"F16", at::kHalf},
                                   {checkpoint::kQ80, at::kFloat}};

std::string WhereIs(const checkpoint::TensorSource& source, const std::string& tensor) {
  return source.name() + ": tensor " + source.NameInFiles(tensor) + " ";
}

// The type of a tensor as it is stored, one of those allowed. Throws unless it is there, of the
// shape that is wanted.
at::ScalarType CheckStored(const checkpoint::TensorSource& source, const TensorSpec& spec,
                           std::span<const StoredType> allowed) {
  const std::string where = WhereIs(source, spec.name);
  const checkpoint::StoredTensor* const stored = source.Find(spec.name);
  if (stored == nullptr) throw LoadError(where + "is missing");
  if (stored->shape != spec.shape) {
    throw LoadError(where + "has shape " + Printable(checkpoint::ShapeText(stored->shape)) +
                    "; the config needs " + checkpoint::ShapeText(spec.shape));
  }
  std::string names;
  for (const auto& [name, type] : allowed) {
    if (stored->dtype == name) return type;
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  throw LoadError(where + "has dtype " + Printable(stored->dtype) + "; allowed: " + names);
}

at::Tensor ReadStored(const checkpoint::TensorSource& source, const TensorSpec& spec,
                      std::span<const StoredType> allowed) {
  const at::Tensor read = at::empty(spec.shape, CheckStored(source, spec, allowed));
  const checkpoint::StoredTensor& stored = *source.Find(spec.name);
  if (stored.dtype == checkpoint::kQ80) {
    std::vector<std::byte> blocks(stored.bytes);
    source.Read(spec.name, blocks);
    checkpoint::DecodeQ80(blocks, {read.data_ptr<float>(), static_cast<size_t>(read.numel())});
    return read;
  }
  source.Read(spec.name, {static_cast<std::byte*>(read.data_ptr()), read.nbytes()});
  return read;
}

at::ScalarType TypeOf(WeightFormat integers) {
  return integers == WeightFormat::kInt8 ? at::kChar : at::kByte;
}

template <typename T>
std::span<T> RowOf(T* matrix, int64_t row, int64_t width) {
  return {matrix + row * width, static_cast<size_t>(width)};
}

// How a matrix of integers is stored: the tensor itself, and its scales.
struct IntegerSpecs {
  TensorSpec integers, scales;
  StoredType integer_type, scale_type;
};

IntegerSpecs IntegerSpecsOf(const TensorSpec& spec, WeightFormat format) {
  const int64_t outputs = spec.shape[0];
  const checkpoint::IntegerRow row = checkpoint::IntegerRowOf(format, spec.shape[1]);
  return {.integers = {spec.name, {outputs, row.elements}},
          .scales = {checkpoint::ScalesName(spec.name), {outputs, row.scales}},
          .integer_type = {row.dtype, TypeOf(format)},
          .scale_type = {"BF16", at::kBFloat16}};
}

void CheckIntegers(const checkpoint::TensorSource& source, const TensorSpec& spec,
                   WeightFormat format) {
  const IntegerSpecs specs = IntegerSpecsOf(spec, format);
  CheckStored(source, specs.integers, {&specs.integer_type, 1});
  CheckStored(source, specs.scales, {&specs.scale_type, 1});
}

// The numbers that a matrix of integers stands for: [outputs, inputs] float32.
at::Tensor ReadIntegers(const checkpoint::TensorSource& source, const TensorSpec& spec,
                        WeightFormat format) {
  const int64_t outputs = spec.shape[0], inputs = spec.shape[1];
  const checkpoint::IntegerRow row = checkpoint::IntegerRowOf(format, inputs);
  const IntegerSpecs specs = IntegerSpecsOf(spec, format);
  const at::Tensor integers = ReadStored(source, specs.integers, {&specs.integer_type, 1});
  const at::Tensor scales = ReadStored(source, specs.scales, {&specs.scale_type, 1});
  at::Tensor numbers = at::empty(spec.shape, at::kFloat);
  const auto* const integer_bytes = static_cast<const std::byte*>(integers.data_ptr());
  const auto* const scale_bits = static_cast<const uint16_t*>(scales.data_ptr());
  auto* const floats = numbers.data_ptr<float>();
  for (int64_t i = 0; i < outputs; ++i) {
    checkpoint::ReadRow(format, RowOf(integer_bytes, i, row.elements),
                        RowOf(scale_bits, i, row.scales), RowOf(floats, i, inputs));
  }
  return numbers;
}

// `integers`: that the tensor is stored as, if it is. `wanted`: as CheckpointReader has it.
at::Tensor ReadTensor(const checkpoint::TensorSource& source, const TensorSpec& spec,
                      std::optional<WeightFormat> integers, std::optional<TensorFormat> wanted) {
  const at::Tensor read =
      integers ? ReadIntegers(source, spec, *integers) : ReadStored(source, spec, kNumbers);
  const TensorFormat format = wanted.value_or(
      read.scalar_type() == at::kBFloat16 ? TensorFormat::kBFloat16 : TensorFormat::kFloat32);
  at::Tensor tensor = read.to(ToScalarType(format));
  if (!AllFinite(tensor, format)) {
    throw LoadError(WhereIs(source, spec.name) + "holds numbers that are not finite in " +
                    std::string(Name(format)) + "; allowed: finite ones");
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

void InterleaveRotary(const ModelConfig& config, int64_t layer, Weights& weights) {
  const std::string attention = AttentionPrefix(layer);
  const auto permute = [&](const std::string& name, int64_t width, int64_t d_rope) {
    for (const char* part : {".weight", ".bias"}) {
      const auto found = weights.find(attention + name + part);
      if (found == weights.end()) continue;
      found->second = InterleaveTailRows(found->second, width, d_rope);
    }
  };
  if (config.attention == AttentionKind::kMla) {
    permute(config.q_lora_rank > 0 ? "q_b_proj" : "q_proj", config.QueryDim(),
            config.qk_rope_head_dim);
    permute("kv_a_proj_with_mqa", config.kv_lora_rank[layer] + config.qk_rope_head_dim,
            config.qk_rope_head_dim);
  } else {
    for (const char* name : {"q_proj", "k_proj", "q_norm", "k_norm"}) {
      permute(name, config.head_dim, config.head_dim);
    }
  }
}

// Contiguous head g * (H/G) + j becomes modular head j * G + g
// (engine/definitions.md#contiguous-grouping).
void PermuteContiguousHeads(const ModelConfig& config, int64_t layer, Weights& weights) {
  const int64_t groups = config.num_key_value_heads;
  const int64_t shared = config.num_attention_heads / groups;
  if (shared == 1) return;
  const std::string attention = AttentionPrefix(layer);
  for (const char* name : {"q_proj.weight", "q_proj.bias"}) {
    const auto found = weights.find(attention + name);
    if (found == weights.end()) continue;
    found->second = found->second.unflatten(0, {groups, shared, config.head_dim})
                        .transpose(0, 1)
                        .flatten(0, 2)
                        .contiguous();
  }
  const auto o = weights.find(attention + "o_proj.weight");
  if (o == weights.end()) return;
  o->second = o->second.unflatten(1, {groups, shared, config.head_dim})
                  .transpose(1, 2)
                  .flatten(1)
                  .contiguous();
}

struct IntegerMatrix {
  at::Tensor integers;  // [outputs, elements of a row]
  at::Tensor scales;    // [outputs, groups] bfloat16
};

// weight: [outputs, inputs]
IntegerMatrix ToIntegers(const at::Tensor& weight, WeightFormat format) {
  const at::Tensor rows = weight.to(at::kFloat).contiguous();
  const int64_t outputs = rows.size(0), inputs = rows.size(1);
  const checkpoint::IntegerRow row = checkpoint::IntegerRowOf(format, inputs);
  IntegerMatrix matrix{.integers = at::empty({outputs, row.elements}, TypeOf(format)),
                       .scales = at::empty({outputs, row.scales}, at::kBFloat16)};
  const auto* const floats = rows.data_ptr<float>();
  auto* const integers = static_cast<std::byte*>(matrix.integers.data_ptr());
  auto* const scales = static_cast<uint16_t*>(matrix.scales.data_ptr());
  for (int64_t i = 0; i < outputs; ++i) {
    checkpoint::StoreRow(format, RowOf(floats, i, inputs), RowOf(integers, i, row.elements),
                         RowOf(scales, i, row.scales));
  }
  return matrix;
}

// The weights and the config are whole on the disk before the first takes its place. A config that
// is there already goes before, so that it never describes the new weights.
void WriteFiles(const std::filesystem::path& directory, const ModelConfig& config,
                const Weights& weights, const std::string& card,
                const std::map<std::string, std::string>& others) {
  for (const char* file : {checkpoint::kWeightsFile, checkpoint::kConfigFile}) {
    if (std::filesystem::is_directory(directory / file)) {
      throw std::runtime_error((directory / file).string() + ": cannot be written: Is a directory");
    }
  }
  std::vector<at::Tensor> kept;  // what `tensors` points into
  std::vector<checkpoint::SafetensorsTensor> tensors;
  const auto add = [&](const std::string& name, const char* dtype, const at::Tensor& tensor) {
    kept.push_back(tensor);
    tensors.push_back({name,
                       dtype,
                       tensor.sizes().vec(),
                       {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()}});
  };
  const std::set<std::string> integers = IntegerTensors(config);
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    const at::Tensor weight = weights.at(spec.name).detach();
    if (integers.contains(spec.name)) {
      const WeightFormat format = config.quantization->format;
      const IntegerMatrix matrix = ToIntegers(weight, format);
      add(spec.name, checkpoint::IntegerRowOf(format, spec.shape[1]).dtype, matrix.integers);
      add(checkpoint::ScalesName(spec.name), SafetensorsName(TensorFormat::kBFloat16),
          matrix.scales);
    } else {
      add(spec.name, SafetensorsName(config.torch_dtype),
          weight.to(ToScalarType(config.torch_dtype)).contiguous());
    }
  }
  StagedFile weights_file(directory / checkpoint::kWeightsFile);
  checkpoint::WriteSafetensors(weights_file, tensors, {{"format", "pt"}});
  weights_file.Sync();
  StagedFile config_file(directory / checkpoint::kConfigFile);
  config_file.Write(checkpoint::ToJson(config));
  config_file.Sync();
  if (!card.empty()) ReplaceFile(directory / kCardFile, card);
  for (const auto& [name, text] : others) ReplaceFile(directory / name, text);
  std::filesystem::remove(directory / checkpoint::kConfigFile);
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

std::string AttentionPrefix(int64_t layer) { return LayerPrefix(layer) + "self_attn."; }
std::string MlpPrefix(int64_t layer) { return LayerPrefix(layer) + "mlp."; }

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

  add(kEmbeddingName, {config.vocab_size, width});
  if (config.position_embedding == PositionEmbedding::kLearned) {
    add(kPositionsName, {config.max_position_embeddings, width});
  }
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string prefix = LayerPrefix(layer);
    const std::string attention = AttentionPrefix(layer);
    const bool bias = config.attention_bias;
    add_norm(prefix + "input_layernorm");
    if (config.q_lora_rank > 0) {
      add_linear(attention + "q_a_proj", config.q_lora_rank, width, config.latent_bias);
      add(attention + "q_a_layernorm.weight", {config.q_lora_rank});
      add_linear(attention + "q_b_proj", heads * config.QueryDim(), config.q_lora_rank, bias);
    } else {
      add_linear(attention + "q_proj", heads * config.QueryDim(), width, bias);
    }
    if (config.attention == AttentionKind::kMla) {
      const int64_t rank = config.kv_lora_rank[layer];
      add_linear(attention + "kv_a_proj_with_mqa", rank + config.qk_rope_head_dim, width,
                 config.latent_bias);
      if (config.kv_a_layernorm) add(attention + "kv_a_layernorm.weight", {rank});
      add_linear(attention + "kv_b_proj", heads * (head_dim + config.ValueDim()), rank, false);
    } else {
      add_linear(attention + "k_proj", config.num_key_value_heads * head_dim, width, bias);
      add_linear(attention + "v_proj", config.num_key_value_heads * head_dim, width, bias);
      if (config.qk_norm) {
        add(attention + "q_norm.weight", {head_dim});
        add(attention + "k_norm.weight", {head_dim});
      }
    }
    add_linear(attention + "o_proj", width, heads * config.ValueDim(), config.OutputBias());
    add_norm(prefix + "post_attention_layernorm");
    if (config.mlp == MlpKind::kSwiglu) {
      add_linear(prefix + "mlp.gate_proj", config.intermediate_size, width, config.mlp_bias);
    }
    add_linear(prefix + "mlp.up_proj", config.intermediate_size, width, config.mlp_bias);
    add_linear(prefix + "mlp.down_proj", width, config.intermediate_size, config.mlp_bias);
  }
  add_norm("model.norm");
  if (!config.tie_word_embeddings) add(kOutputName, {config.vocab_size, width});
  return specs;
}

int64_t ParameterCount(const ModelConfig& config) {
  int64_t count = 0;
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    count += std::accumulate(spec.shape.begin(), spec.shape.end(), int64_t{1}, std::multiplies<>());
  }
  return count;
}

int64_t ParameterBytes(const ModelConfig& config, const WeightFormats& formats) {
  int64_t bytes = 0;
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    const WeightFormat own = IsEmbedding(spec) ? formats.embeddings : formats.layers;
    const int64_t rows = spec.shape.size() == 2 ? spec.shape[0] : 1;
    bytes += WeightBytes(IsInteger(own) && !IsMatrix(spec) ? WeightFormat::kFloat32 : own,
                         spec.shape.back(), rows);
  }
  return bytes;
}

std::set<std::string> IntegerTensors(const ModelConfig& config) {
  std::set<std::string> names;
  if (!config.quantization) return names;
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    if (IsMatrix(spec) && (config.quantization->embeddings || !IsEmbedding(spec))) {
      names.insert(spec.name);
    }
  }
  const std::vector<ReducedForm> forms = ReducedForms(config);
  for (size_t layer = 0; layer < forms.size(); ++layer) {
    const std::string attention = AttentionPrefix(static_cast<int64_t>(layer));
    names.erase(attention + "kv_b_proj.weight");
    if (forms[layer] == ReducedForm::kPremultiplied) {
      names.erase(attention + (config.q_lora_rank > 0 ? "q_b_proj.weight" : "q_proj.weight"));
      names.erase(attention + "o_proj.weight");
    }
  }
  return names;
}

std::vector<std::string> PartPrefixes(const ModelConfig& config) {
  std::vector<std::string> prefixes;
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    if (!LayerOf(spec.name)) prefixes.push_back(spec.name);
  }
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    prefixes.push_back(LayerPrefix(layer));
  }
  return prefixes;
}

Weights HeldWeights::Take(const std::string& prefix) {
  Weights taken;
  for (auto it = weights_.lower_bound(prefix);
       it != weights_.end() && it->first.starts_with(prefix);) {
    taken.insert(weights_.extract(it++));
  }
  return taken;
}

CheckpointReader::CheckpointReader(checkpoint::OpenedCheckpoint opened,
                                   std::optional<TensorFormat> format)
    : stored_(std::move(opened.config)),
      config_(stored_),
      integers_(IntegerTensors(stored_)),
      tensors_(std::move(opened.tensors)),
      format_(format) {
  config_.quantization.reset();
  config_.rope_interleave = true;
  config_.head_grouping = HeadGrouping::kModular;

  std::set<std::string> scales;
  for (const TensorSpec& spec : ExpectedTensors(stored_)) {
    if (integers_.contains(spec.name)) {
      scales.insert(checkpoint::ScalesName(spec.name));
      CheckIntegers(*tensors_, spec, stored_.quantization->format);
    } else {
      CheckStored(*tensors_, spec, kNumbers);
    }
    specs_.emplace(spec.name, spec);
  }
  for (const std::string& name : tensors_->TensorNames()) {
    if (!specs_.contains(name) && !scales.contains(name)) {
      throw LoadError(tensors_->name() + ": tensor " + Printable(name) +
                      " does not belong to a model with this config");
    }
  }
}

Weights CheckpointReader::Take(const std::string& prefix) {
  const std::optional<int64_t> layer = LayerOf(prefix);
  const std::string_view layers = kLayersPrefix;
  if (layer ? !prefix.starts_with(LayerPrefix(*layer))
            : layers.starts_with(prefix) || prefix.starts_with(layers)) {
    throw std::invalid_argument(Quoted(prefix) + " begins names of more than one layer's tensors");
  }
  Weights weights;
  for (auto it = specs_.lower_bound(prefix); it != specs_.end() && it->first.starts_with(prefix);
       ++it) {
    std::optional<WeightFormat> stored_as;
    if (integers_.contains(it->first)) stored_as = stored_.quantization->format;
    weights.emplace(it->first, ReadTensor(*tensors_, it->second, stored_as, format_));
  }
  if (!layer) return weights;
  if (stored_.position_embedding == PositionEmbedding::kRope && !stored_.rope_interleave) {
    InterleaveRotary(stored_, *layer, weights);
  }
  if (stored_.head_grouping == HeadGrouping::kContiguous) {
    PermuteContiguousHeads(stored_, *layer, weights);
  }
  return weights;
}

Checkpoint LoadCheckpoint(const std::filesystem::path& checkpoint, TensorFormat format) {
  return ReadCheckpoint(checkpoint::OpenCheckpoint(checkpoint), format);
}

Checkpoint ReadCheckpoint(checkpoint::OpenedCheckpoint opened, TensorFormat format) {
  CheckpointReader reader(std::move(opened), format);
  Checkpoint checkpoint{.config = reader.config(), .weights = {}};
  for (const std::string& prefix : PartPrefixes(checkpoint.config)) {
    checkpoint.weights.merge(reader.Take(prefix));
  }
  return checkpoint;
}

bool HoldsModel(const std::filesystem::path& directory) {
  return Exists(directory / checkpoint::kWeightsFile) || Exists(directory / checkpoint::kIndexFile);
}

void SaveCheckpoint(const std::filesystem::path& directory, const ModelConfig& config,
                    const Weights& weights, const std::string& card,
                    const std::map<std::string, std::string>& others) {
  CheckOutputDirectory(directory);
  if (Exists(directory)) {
    WriteFiles(directory, config, weights, card, others);
    return;
  }
  std::filesystem::path place = directory;
  if (!place.has_filename()) place = place.parent_path();  // "DIR/"
  if (place.has_parent_path()) std::filesystem::create_directories(place.parent_path());
  const std::filesystem::path staging = MakeUniqueDirectory(place);
  try {
    WriteFiles(staging, config, weights, card, others);
    std::filesystem::rename(staging, place);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove_all(staging, ignored);
    throw;
  }
}

}  // namespace triptych
