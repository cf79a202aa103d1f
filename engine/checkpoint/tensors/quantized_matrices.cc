#include "engine/checkpoint/tensors/quantized_matrices.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/base/bfloat16.h"
#include "engine/base/ceil_div.h"
#include "engine/base/error.h"
#include "engine/base/float16.h"
#include "engine/base/quoted.h"
#include "engine/checkpoint/tensors/decoded_tensors.h"

namespace triptych::checkpoint {
namespace {

using Layout = PublishedQuantization::Layout;

std::string WhereIsPart(const TensorSource& source, const std::string& tensor) {
  return source.name() + ": tensor " + Printable(tensor) + " ";
}

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

template <typename T>
std::vector<T> ReadAllOf(const TensorSource& source, const std::string& tensor) {
  std::vector<T> elements(source.Find(tensor)->bytes / sizeof(T));
  source.Read(tensor, std::as_writable_bytes(std::span(elements)));
  return elements;
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

// The elements of I32 or I64.
std::vector<int64_t> ReadIntegers(const TensorSource& source, const std::string& tensor) {
  if (source.Find(tensor)->dtype == "I64") return ReadAllOf<int64_t>(source, tensor);
  const auto narrow = ReadAllOf<int32_t>(source, tensor);
  return {narrow.begin(), narrow.end()};
}

// ---- Parts of a matrix
// ---------------------------------------------------------------------------

// A quantized matrix. Scales and zero points lie on a grid of `scale_rows` by `groups`.
struct Matrix {
  PublishedQuantization quantization;
  std::string integers, scales, zeros, order;  // names of its tensors; empty: none
  int64_t outputs = 0, inputs = 0;
  int64_t rows = 1, columns = 1;  // of one scale
  int64_t scale_rows = 1, groups = 1;
};

int64_t PerWord(const Matrix& matrix) { return 32 / matrix.quantization.bits; }

// Whether words are along the outputs, so that the matrix and its scales are transposed.
bool Transposed(const Matrix& matrix) {
  return matrix.quantization.layout == Layout::kGptq || matrix.quantization.layout == Layout::kAwq;
}

// Sets the extents from the shape of the integers. Throws LoadError.
void FindExtents(const TensorSource& source, const std::string& module, Matrix& matrix) {
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
  const int64_t first = stored.shape[0], second = stored.shape[1], per_word = PerWord(matrix);
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
void FindScales(const TensorSource& source, Matrix& matrix) {
  const StoredTensor& stored = PartOf(source, matrix.scales, {"F16", "BF16", "F32"});
  matrix.rows = matrix.quantization.rows;
  matrix.columns = matrix.quantization.columns.value_or(matrix.inputs);
  const bool one =
      !matrix.quantization.columns && std::all_of(stored.shape.begin(), stored.shape.end(),
                                                  [](int64_t extent) { return extent == 1; });
  if (one && !Transposed(matrix)) {
    matrix.rows = matrix.outputs;
    return;
  }
  matrix.scale_rows = CeilDiv(matrix.outputs, matrix.rows);
  matrix.groups = CeilDiv(matrix.inputs, matrix.columns);
  if (Transposed(matrix)) {
    CheckShape(source, matrix.scales, stored, {{matrix.groups, matrix.scale_rows}});
  } else if (matrix.groups == 1) {
    CheckShape(source, matrix.scales, stored, {{matrix.scale_rows, 1}, {matrix.scale_rows}});
  } else {
    CheckShape(source, matrix.scales, stored, {{matrix.scale_rows, matrix.groups}});
  }
}

void CheckZeros(const TensorSource& source, const Matrix& matrix) {
  if (matrix.zeros.empty()) return;
  const int64_t words = CeilDiv(matrix.scale_rows, PerWord(matrix));
  if (Transposed(matrix)) {
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

// ---- Decoding
// ------------------------------------------------------------------------------------

// The numbers of F8_E4M3 ("e4m3fn"): no infinities, and NaN if all bits but the sign are set.
std::array<float, 256> MakeFloat8() {
  std::array<float, 256> numbers;
  for (int bits = 0; bits < 256; ++bits) {
    const int exponent = bits >> 3 & 0xf, fraction = bits & 7;
    float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                                    : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
    if ((bits & 0x7f) == 0x7f) magnitude = std::numeric_limits<float>::quiet_NaN();
    numbers[bits] = bits < 0x80 ? magnitude : -magnitude;
  }
  return numbers;
}

// The place in eight outputs of the integer at each place in a word of AWQ.
constexpr std::array<int, 8> kAwqOrder = {0, 2, 4, 6, 1, 3, 5, 7};

// Integers along rows of words, of which the last may have fewer.
//   words: [rows, ceil(columns / n)]   numbers: [rows, columns]
void UnpackRows(const Matrix& matrix, std::span<const uint32_t> words, int64_t columns,
                std::span<float> numbers) {
  const int bits = matrix.quantization.bits;
  const uint32_t mask = (1U << bits) - 1;
  const auto offset = static_cast<float>(1 << (bits - 1));  // integers are stored unsigned
  const int64_t per_word = PerWord(matrix), of_row = CeilDiv(columns, per_word);
  for (size_t row = 0; row < numbers.size() / columns; ++row) {
    for (int64_t i = 0; i < columns; ++i) {
      const uint32_t word = words[row * of_row + i / per_word];
      numbers[row * columns + i] =
          static_cast<float>(word >> (i % per_word * bits) & mask) - offset;
    }
  }
}

// Words of a matrix that is stored transposed. Tiles of outputs keep the rows that they write in
// the L1 cache.
//   words: GPTQ [inputs / n, outputs], AWQ [inputs, outputs / n]   numbers: [outputs, inputs]
void UnpackTransposed(const Matrix& matrix, std::span<const uint32_t> words,
                      std::span<float> numbers) {
  constexpr int64_t kTile = 16;
  const bool awq = matrix.quantization.layout == Layout::kAwq;
  const int bits = matrix.quantization.bits;
  const uint32_t mask = (1U << bits) - 1;
  const int64_t per_word = PerWord(matrix), inputs = matrix.inputs;
  const int64_t width = awq ? matrix.outputs / per_word : matrix.outputs;
  const int64_t height = static_cast<int64_t>(words.size()) / width;
  for (int64_t left = 0; left < width; left += kTile) {
    for (int64_t row = 0; row < height; ++row) {
      for (int64_t column = left; column < std::min(left + kTile, width); ++column) {
        const uint32_t word = words[row * width + column];
        for (int64_t i = 0; i < per_word; ++i) {
          const int64_t at = awq ? (column * per_word + kAwqOrder[i]) * inputs + row
                                 : column * inputs + row * per_word + i;
          numbers[at] = static_cast<float>(word >> (i * bits) & mask);
        }
      }
    }
  }
}

std::vector<float> Transpose(std::span<const float> from, int64_t rows, int64_t columns) {
  std::vector<float> to(from.size());
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) to[j * rows + i] = from[i * columns + j];
  }
  return to;
}

// [scale_rows, groups]
std::vector<float> ReadScales(const TensorSource& source, const Matrix& matrix) {
  std::vector<float> scales = ReadFloats(source, matrix.scales);
  return Transposed(matrix) ? Transpose(scales, matrix.groups, matrix.scale_rows) : scales;
}

// [scale_rows, groups]; zeros without zero points
std::vector<float> ReadZeros(const TensorSource& source, const Matrix& matrix) {
  std::vector<float> zeros(matrix.scale_rows * matrix.groups);
  if (matrix.zeros.empty()) return zeros;
  switch (matrix.quantization.layout) {
    case Layout::kGptq:
    case Layout::kAwq: {
      const auto words = ReadAllOf<uint32_t>(source, matrix.zeros);
      const int bits = matrix.quantization.bits;
      const int64_t per_word = PerWord(matrix), width = CeilDiv(matrix.outputs, per_word);
      for (int64_t group = 0; group < matrix.groups; ++group) {
        for (int64_t i = 0; i < width * per_word; ++i) {
          const int64_t place = matrix.quantization.layout == Layout::kAwq
                                    ? i / per_word * per_word + kAwqOrder[i % per_word]
                                    : i;
          if (place >= matrix.outputs) continue;
          const uint32_t stored =
              words[group * width + i / per_word] >> (i % per_word * bits) & ((1U << bits) - 1);
          zeros[place * matrix.groups + group] =
              static_cast<float>(stored) + static_cast<float>(matrix.quantization.added_to_zeros);
        }
      }
      break;
    }
    case Layout::kPacked: {  // along the outputs
      const int64_t words = CeilDiv(matrix.scale_rows, PerWord(matrix));
      const auto stored = ReadAllOf<uint32_t>(source, matrix.zeros);
      std::vector<uint32_t> turned(stored.size());
      for (int64_t i = 0; i < words; ++i) {
        for (int64_t j = 0; j < matrix.groups; ++j) {
          turned[j * words + i] = stored[i * matrix.groups + j];
        }
      }
      std::vector<float> transposed(zeros.size());
      UnpackRows(matrix, turned, matrix.scale_rows, transposed);
      zeros = Transpose(transposed, matrix.groups, matrix.scale_rows);
      break;
    }
    case Layout::kIntegers:
    case Layout::kFloat8: {
      const auto stored = ReadAllOf<int8_t>(source, matrix.zeros);
      std::copy(stored.begin(), stored.end(), zeros.begin());
      break;
    }
  }
  return zeros;
}

// The group of each input; none if groups are in order. Throws LoadError.
std::vector<int64_t> ReadOrder(const TensorSource& source, const Matrix& matrix) {
  if (matrix.order.empty()) return {};
  std::vector<int64_t> order = ReadIntegers(source, matrix.order);
  bool in_order = true;
  for (int64_t i = 0; i < matrix.inputs; ++i) {
    if (order[i] < 0 || order[i] >= matrix.groups) {
      throw LoadError(WhereIsPart(source, matrix.order) + "holds " + std::to_string(order[i]) +
                      "; allowed: groups from 0 to " + std::to_string(matrix.groups - 1));
    }
    in_order &= order[i] == i / matrix.columns;
  }
  if (in_order) order.clear();
  return order;
}

// Stored integers, or narrow floats, as floats.
void ReadStored(const TensorSource& source, const Matrix& matrix, std::span<float> numbers) {
  switch (matrix.quantization.layout) {
    case Layout::kGptq:
    case Layout::kAwq:
      UnpackTransposed(matrix, ReadAllOf<uint32_t>(source, matrix.integers), numbers);
      return;
    case Layout::kPacked:
      UnpackRows(matrix, ReadAllOf<uint32_t>(source, matrix.integers), matrix.inputs, numbers);
      return;
    case Layout::kIntegers: {
      const auto stored = ReadAllOf<int8_t>(source, matrix.integers);
      std::copy(stored.begin(), stored.end(), numbers.begin());
      return;
    }
    case Layout::kFloat8: {
      static const std::array<float, 256> float8 = MakeFloat8();
      const auto stored = ReadAllOf<uint8_t>(source, matrix.integers);
      std::transform(stored.begin(), stored.end(), numbers.begin(),
                     [](uint8_t bits) { return float8[bits]; });
      return;
    }
  }
}

void Decode(const TensorSource& source, const Matrix& matrix, std::span<float> numbers) {
  const std::vector<float> scales = ReadScales(source, matrix);
  const std::vector<float> zeros = ReadZeros(source, matrix);
  const std::vector<int64_t> order = ReadOrder(source, matrix);
  ReadStored(source, matrix, numbers);
  for (int64_t row = 0; row < matrix.outputs; ++row) {
    const std::span<float> own = numbers.subspan(row * matrix.inputs, matrix.inputs);
    const float* const scale = &scales[row / matrix.rows * matrix.groups];
    const float* const zero = &zeros[row / matrix.rows * matrix.groups];
    if (!order.empty()) {
      for (int64_t i = 0; i < matrix.inputs; ++i) {
        own[i] = (own[i] - zero[order[i]]) * scale[order[i]];
      }
      continue;
    }
    for (int64_t group = 0; group < matrix.groups; ++group) {
      const int64_t begin = group * matrix.columns;
      for (float& number : own.subspan(begin, std::min(matrix.columns, matrix.inputs - begin))) {
        number = (number - zero[group]) * scale[group];
      }
    }
  }
}

// ---- Modules
// -------------------------------------------------------------------------------------

// Ending of the tensor with the integers, which makes a module a quantized one.
const char* EndingOf(Layout layout) {
  switch (layout) {
    case Layout::kGptq:
    case Layout::kAwq:
      return ".qweight";
    case Layout::kPacked:
      return ".weight_packed";
    case Layout::kIntegers:
    case Layout::kFloat8:
      return ".weight";
  }
  return "";
}

// The matrix of a module, by the module's name with a point at its end. Throws LoadError.
Matrix FindMatrix(const TensorSource& source, const PublishedQuantization& quantization,
                  const std::string& module, const std::string& integers) {
  Matrix matrix{
      .quantization = quantization, .integers = integers, .scales = {}, .zeros = {}, .order = {}};
  const auto if_there = [&](const std::string& name) {
    return source.Find(name) == nullptr ? std::string() : name;
  };
  if (Transposed(matrix)) {
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

// Tensors of activations and of caches.
bool IsOfActivations(std::string_view name) {
  for (const std::string_view ending :
       {".input_scale", ".input_zero_point", ".output_scale", ".output_zero_point", ".k_scale",
        ".v_scale", ".q_scale", ".kv_scale"}) {
    if (name.ends_with(ending)) return true;
  }
  return false;
}

// Whether the config has the bias of a module of a layer.
bool HasBias(const ModelConfig& config, const std::string& module) {
  if (module.ends_with(".o_proj.")) return config.OutputBias();
  if (module.find(".mlp.") != module.npos) return config.mlp_bias;
  return config.attention_bias || config.latent_bias;
}

bool AllZero(const TensorSource& source, const std::string& tensor) {
  const auto bytes = ReadAllOf<std::byte>(source, tensor);
  return std::all_of(bytes.begin(), bytes.end(),
                     [](std::byte byte) { return byte == std::byte{}; });
}

}  // namespace

std::shared_ptr<const TensorSource> DecodeMatrices(std::shared_ptr<const TensorSource> source,
                                                   const PublishedQuantization& quantization,
                                                   const ModelConfig& config) {
  const std::string ending = EndingOf(quantization.layout);
  std::map<std::string, DecodedOrigin> origins;
  std::set<std::string> left_out;
  for (const std::string& name : source->TensorNames()) {
    if (IsOfActivations(name)) left_out.insert(name);
    const std::string& dtype = source->Find(name)->dtype;
    const bool stored_as_numbers = dtype == "F16" || dtype == "BF16" || dtype == "F32";
    if (!name.ends_with(ending) || (ending == ".weight" && stored_as_numbers)) continue;
    const std::string module = name.substr(0, name.size() - ending.size() + 1);
    const Matrix matrix = FindMatrix(*source, quantization, module, name);
    left_out.insert({matrix.integers, matrix.scales, matrix.zeros, matrix.order});
    left_out.insert(module + "weight_shape");
    const std::string bias = module + "bias";
    if (source->Find(bias) != nullptr && !HasBias(config, module) && AllZero(*source, bias)) {
      left_out.insert(bias);
    }
    origins[module + "weight"] = {
        .tensor = name,
        .shape = {matrix.outputs, matrix.inputs},
        .decode = [matrix](const TensorSource& stored, std::span<float> numbers) {
          Decode(stored, matrix, numbers);
        }};
  }
  return std::make_shared<const DecodedTensors>(std::move(source), std::move(origins), left_out);
}

}  // namespace triptych::checkpoint
