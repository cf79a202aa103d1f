#include "engine/decoder/read_weights.h"

#include <ATen/ATen.h>

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/quoted.h"
#include "engine/checkpoint/tensors/integer_rows.h"
#include "engine/decoder/engine_order.h"
#include "engine/decoder/integer_matrix.h"

namespace triptych {
namespace {

// Whether no element's exponent is all ones, as that of infinities and NaN is.
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
  const char* name;     // in StoredTensor
  at::ScalarType type;  // in memory
};
constexpr StoredType kNumbers[] = {
    {"F32", at::kFloat}, {"BF16", at::kBFloat16}, {"F16", at::kHalf}};

std::string WhereIs(const checkpoint::TensorSource& source, const std::string& tensor) {
  return source.name() + ": tensor " + source.NameInFiles(tensor) + " ";
}

// The type of a stored tensor. Throws unless the tensor is there, has the shape of `spec` and one
// of the types allowed.
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
  source.Read(spec.name, {static_cast<std::byte*>(read.data_ptr()), read.nbytes()});
  return read;
}

// The two tensors that store a matrix as integers.
struct IntegerSpecs {
  TensorSpec integers, scales;
  StoredType integer_type, scale_type;
};

IntegerSpecs IntegerSpecsOf(const TensorSpec& spec, WeightFormat format) {
  const int64_t outputs = spec.shape[0];
  const checkpoint::IntegerRow row = checkpoint::IntegerRowOf(format, spec.shape[1]);
  return {.integers = {spec.name, {outputs, row.elements}},
          .scales = {checkpoint::ScalesName(spec.name), {outputs, row.scales}},
          .integer_type = {row.dtype, IntegerType(format)},
          .scale_type = {"BF16", at::kBFloat16}};
}

void CheckIntegers(const checkpoint::TensorSource& source, const TensorSpec& spec,
                   WeightFormat format) {
  const IntegerSpecs specs = IntegerSpecsOf(spec, format);
  CheckStored(source, specs.integers, {&specs.integer_type, 1});
  CheckStored(source, specs.scales, {&specs.scale_type, 1});
}

// [outputs, inputs] float32
at::Tensor ReadIntegers(const checkpoint::TensorSource& source, const TensorSpec& spec,
                        WeightFormat format) {
  const IntegerSpecs specs = IntegerSpecsOf(spec, format);
  return ToNumbers({.integers = ReadStored(source, specs.integers, {&specs.integer_type, 1}),
                    .scales = ReadStored(source, specs.scales, {&specs.scale_type, 1})},
                   spec.shape[1], format);
}

// `integers`: the format of a tensor that is stored as integers. `wanted`: CheckpointReader's
// format.
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

}  // namespace

CheckpointReader::CheckpointReader(checkpoint::OpenedCheckpoint opened,
                                   std::optional<TensorFormat> format)
    : stored_(std::move(opened.config)),
      config_(stored_),
      integers_(IntegerTensors(stored_)),
      tensors_(std::move(opened.tensors)),
      format_(format) {
  config_.quantization.reset();
  config_.served_formats.reset();
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
  if (layer) ToEngineOrder(stored_, *layer, weights);
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

}  // namespace triptych
