#include "engine/checkpoint/tensors/quantized_matrix.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <tuple>
#include <utility>

#include "engine/base/bfloat16.h"
#include "engine/base/ceil_div.h"
#include "engine/base/error.h"
#include "engine/base/float16.h"
#include "engine/base/quoted.h"

namespace triptych::checkpoint {
namespace {

using Layout = PublishedQuantization::Layout;

// The description of a tensor with one of the dtypes. Throws LoadError.
const StoredTensor& PartOf(const TensorSource& source, const std::string& tensor,
                           std::initializer_list<std::string_view> dtypes) {
  const StoredTensor* const stored = source.Find(tensor);
  if (stored == nullptr) throw LoadError(WhereIsPart(source, tensor) + "is missing");
  std::string allowed;
  for (const std::string_view dtype : dtypes) {
    if (stored->dtype == dtype) return *stored;
    allowed += (allowed.empty() ? "" : ", ") + std::string(dtype);
  }
  throw LoadError(WhereIsPart(source, tensor) + "has dtype " + Printable(stored->dtype) +
                  "; allowed: " + allowed);
}

// Throws LoadError unless a tensor has one of the shapes, of which the first is for messages.
void CheckShape(const TensorSource& source, const std::string& tensor, const StoredTensor& stored,
                std::initializer_list<std::vector<int64_t>> shapes) {
  if (std::find(shapes.begin(), shapes.end(), stored.shape) != shapes.end()) return;
  throw LoadError(WhereIsPart(source, tensor) + "has shape " + Printable(ShapeText(stored.shape)) +
                  "; the quantization needs " + ShapeText(*shapes.begin()));
}

// Sets the extents from the shape of the integers. Throws LoadError.
void FindExtents(const TensorSource& source, const std::string& module, QuantizedMatrix& matrix) {
  const bool whole_bytes = matrix.quantization.layout == Layout::kIntegers ||
                           matrix.quantization.layout == Layout::kFloat8;
  const StoredTensor& stored = PartOf(
      source, matrix.integers,
      {whole_bytes ? (matrix.quantization.layout == Layout::kFloat8 ? "F8_E4M3" : "I8") : "I32"});
  if (stored.shape.size() != 2 || stored.bytes == 0) {
    throw LoadError(WhereIsPart(source, matrix.integers) + "has shape " +
                    Printable(ShapeText(stored.shape)) + "; allowed: two dimensions of at least 1");
  }
  // The file holds all elements, and so the products do not overflow.
  const int64_t first = stored.shape[0], second = stored.shape[1], per_word = matrix.PerWord();
  switch (matrix.quantization.layout) {
    case Layout::kGptq:
      std::tie(matrix.outputs, matrix.inputs) = std::pair(second, first * per_word);
      break;
    case Layout::kAwq:
      std::tie(matrix.outputs, matrix.inputs) = std::pair(second * per_word, first);
      break;
    case Layout::kPacked: {
      const std::string name = module + "weight_shape";
      CheckShape(source, name, PartOf(source, name, {"I64", "I32"}), {{2}});
      const std::vector<int64_t> shape = ReadIntegers(source, name);
      if (shape[0] != first || shape[1] <= (second - 1) * per_word ||
          shape[1] > second * per_word) {
        throw LoadError(WhereIsPart(source, name) + "holds " + ShapeText(shape) + "; " +
                        Printable(matrix.integers) + " has shape " + ShapeText(stored.shape) +
                        " of " + std::to_string(per_word) + " integers each");
      }
      std::tie(matrix.outputs, matrix.inputs) = std::pair(shape[0], shape[1]);
      break;
    }
    case Layout::kIntegers:
    case Layout::kFloat8:
      std::tie(matrix.outputs, matrix.inputs) = std::pair(first, second);
      break;
  }
}

// Sets the grid of the scales. Throws LoadError.
void FindScales(const TensorSource& source, QuantizedMatrix& matrix) {
  const StoredTensor& stored = PartOf(source, matrix.scales, {"F16", "BF16", "F32"});
  matrix.rows = matrix.quantization.rows;
  matrix.columns = matrix.quantization.columns.value_or(matrix.inputs);
  const bool one =
      !matrix.quantization.columns && std::all_of(stored.shape.begin(), stored.shape.end(),
                                                  [](int64_t extent) { return extent == 1; });
  if (one && !matrix.Transposed()) {
    matrix.rows = matrix.outputs;
    return;
  }
  matrix.scale_rows = CeilDiv(matrix.outputs, matrix.rows);
  matrix.groups = CeilDiv(matrix.inputs, matrix.columns);
  if (matrix.Transposed()) {
    CheckShape(source, matrix.scales, stored, {{matrix.groups, matrix.scale_rows}});
  } else if (matrix.groups == 1) {
    CheckShape(source, matrix.scales, stored, {{matrix.scale_rows, 1}, {matrix.scale_rows}});
  } else {
    CheckShape(source, matrix.scales, stored, {{matrix.scale_rows, matrix.groups}});
  }
}

void CheckZeros(const TensorSource& source, const QuantizedMatrix& matrix) {
  if (matrix.zeros.empty()) return;
  const int64_t words = CeilDiv(matrix.scale_rows, matrix.PerWord());
  if (matrix.Transposed()) {
    CheckShape(source, matrix.zeros, PartOf(source, matrix.zeros, {"I32"}),
               {{matrix.groups, words}});
  } else if (matrix.quantization.layout == Layout::kPacked) {
    CheckShape(source, matrix.zeros, PartOf(source, matrix.zeros, {"I32"}),
               {{words, matrix.groups}});
  } else {
    CheckShape(source, matrix.zeros, PartOf(source, matrix.zeros, {"I8"}),
               {source.Find(matrix.scales)->shape});
  }
}

}  // namespace

std::string WhereIsPart(const TensorSource& source, const std::string& tensor) {
  return source.name() + ": tensor " + Printable(tensor) + " ";
}

std::vector<float> ReadFloats(const TensorSource& source, const std::string& tensor) {
  const std::string& dtype = source.Find(tensor)->dtype;
  if (dtype == "F32") return ReadAllOf<float>(source, tensor);
  const auto halves = ReadAllOf<uint16_t>(source, tensor);
  std::vector<float> floats(halves.size());
  std::transform(halves.begin(), halves.end(), floats.begin(),
                 dtype == "F16" ? FromFloat16 : FromBFloat16);
  return floats;
}

std::vector<int64_t> ReadIntegers(const TensorSource& source, const std::string& tensor) {
  if (source.Find(tensor)->dtype == "I64") return ReadAllOf<int64_t>(source, tensor);
  const auto narrow = ReadAllOf<int32_t>(source, tensor);
  return {narrow.begin(), narrow.end()};
}

// The matrix of a module, by the module's name with a point at its end. Throws LoadError.
QuantizedMatrix FindQuantizedMatrix(const TensorSource& source,
                                    const PublishedQuantization& quantization,
                                    const std::string& module, const std::string& integers) {
  QuantizedMatrix matrix{
      .quantization = quantization, .integers = integers, .scales = {}, .zeros = {}, .order = {}};
  const auto if_there = [&](const std::string& name) {
    return source.Find(name) == nullptr ? std::string() : name;
  };
  if (matrix.Transposed()) {
    matrix.scales = module + "scales";
    matrix.zeros = module + "qzeros";
    if (quantization.layout == Layout::kGptq) matrix.order = if_there(module + "g_idx");
  } else {
    matrix.scales = if_there(module + "weight_scale_inv");
    if (matrix.scales.empty()) matrix.scales = module + "weight_scale";
    if (quantization.zero_points) matrix.zeros = module + "weight_zero_point";
    matrix.order = if_there(module + "weight_g_idx");
  }
  FindExtents(source, module, matrix);
  FindScales(source, matrix);
  CheckZeros(source, matrix);
  if (!matrix.order.empty()) {
    CheckShape(source, matrix.order, PartOf(source, matrix.order, {"I32", "I64"}),
               {{matrix.inputs}});
  }
  return matrix;
}

}  // namespace triptych::checkpoint
