#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "engine/base/ceil_div.h"
#include "engine/base/error.h"
#include "engine/checkpoint/tensors/quantized_matrix.h"

namespace triptych::checkpoint {
namespace {

using Layout = PublishedQuantization::Layout;

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
void UnpackRows(const QuantizedMatrix& matrix, std::span<const uint32_t> words, int64_t columns,
                std::span<float> numbers) {
  const int bits = matrix.quantization.bits;
  const uint32_t mask = (1U << bits) - 1;
  const auto offset = static_cast<float>(1 << (bits - 1));  // integers are stored unsigned
  const int64_t per_word = matrix.PerWord(), of_row = CeilDiv(columns, per_word);
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
void UnpackTransposed(const QuantizedMatrix& matrix, std::span<const uint32_t> words,
                      std::span<float> numbers) {
  constexpr int64_t kTile = 16;
  const bool awq = matrix.quantization.layout == Layout::kAwq;
  const int bits = matrix.quantization.bits;
  const uint32_t mask = (1U << bits) - 1;
  const int64_t per_word = matrix.PerWord(), inputs = matrix.inputs;
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
std::vector<float> ReadScales(const TensorSource& source, const QuantizedMatrix& matrix) {
  std::vector<float> scales = ReadFloats(source, matrix.scales);
  return matrix.Transposed() ? Transpose(scales, matrix.groups, matrix.scale_rows) : scales;
}

// [scale_rows, groups]; zeros without zero points
std::vector<float> ReadZeros(const TensorSource& source, const QuantizedMatrix& matrix) {
  std::vector<float> zeros(matrix.scale_rows * matrix.groups);
  if (matrix.zeros.empty()) return zeros;
  switch (matrix.quantization.layout) {
    case Layout::kGptq:
    case Layout::kAwq: {
      const auto words = ReadAllOf<uint32_t>(source, matrix.zeros);
      const int bits = matrix.quantization.bits;
      const int64_t per_word = matrix.PerWord(), width = CeilDiv(matrix.outputs, per_word);
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
      const int64_t words = CeilDiv(matrix.scale_rows, matrix.PerWord());
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
std::vector<int64_t> ReadOrder(const TensorSource& source, const QuantizedMatrix& matrix) {
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
void ReadStored(const TensorSource& source, const QuantizedMatrix& matrix,
                std::span<float> numbers) {
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

}  // namespace

void DecodeQuantizedMatrix(const TensorSource& source, const QuantizedMatrix& matrix,
                           std::span<float> numbers) {
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

}  // namespace triptych::checkpoint
