// Matrices of published quantizations as they are stored. A module's name ends in a point.
#ifndef TRIPTYCH_TESTS_SUPPORT_QUANTIZED_FILES_H_
#define TRIPTYCH_TESTS_SUPPORT_QUANTIZED_FILES_H_

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "engine/base/float16.h"
#include "engine/checkpoint/tensors/safetensors.h"
#include "tests/support/gguf_file.h"

namespace triptych::published {

// Float16 numbers from 2^-8 to 2^-5.
inline uint16_t RandomScale(std::mt19937& random) {
  return (7 + random() % 3) << 10 | random() % 1024;
}

// The integers, zero points and scales of one random matrix, before a program packs them.
struct QuantizedMatrix {
  QuantizedMatrix(int bits_in, int64_t outputs_in, int64_t inputs_in, int64_t groups_in,
                  unsigned seed)
      : bits(bits_in), outputs(outputs_in), inputs(inputs_in), groups(groups_in) {
    std::mt19937 random(seed);
    for (int64_t i = 0; i < outputs * inputs; ++i) integers.push_back(random() % (1 << bits));
    for (int64_t i = 0; i < outputs * groups; ++i) {
      zeros.push_back(1 + random() % ((1 << bits) - 1));
      scales.push_back(RandomScale(random));
    }
    for (int64_t i = 0; i < inputs; ++i) group_of.push_back(i * groups / inputs);
  }

  uint32_t Integer(int64_t output, int64_t input) const {
    return integers[output * inputs + input];
  }
  // In float64, rounded once.
  std::vector<float> Numbers() const {
    std::vector<float> numbers;
    for (int64_t output = 0; output < outputs; ++output) {
      for (int64_t input = 0; input < inputs; ++input) {
        const int64_t at = output * groups + group_of[input];
        const double steps =
            static_cast<double>(Integer(output, input)) - static_cast<double>(zeros[at]);
        numbers.push_back(static_cast<float>(steps * FromFloat16(scales[at])));
      }
    }
    return numbers;
  }

  int bits;
  int64_t outputs;
  int64_t inputs;
  int64_t groups;
  std::vector<uint32_t> integers;  // [outputs, inputs]
  std::vector<uint32_t> zeros;     // [outputs, groups]
  std::vector<uint16_t> scales;    // [outputs, groups]
  std::vector<int32_t> group_of;   // [inputs]
};

// `values`, 32 / bits to a word, the first in the lowest bits.
template <typename Value>
std::string Packed(int bits, int64_t count, const Value& value) {
  std::string words;
  for (int64_t at = 0; at < count; at += 32 / bits) {
    uint32_t word = 0;
    for (int64_t i = at; i < std::min<int64_t>(at + 32 / bits, count); ++i) {
      word |= static_cast<uint32_t>(value(i)) << (i - at) * bits;
    }
    words += BytesOf(word);
  }
  return words;
}

struct Stored {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};
// Tensors of a safetensors file by name.
using StoredTensors = std::map<std::string, Stored>;

inline void Write(const std::filesystem::path& file, const StoredTensors& tensors) {
  std::vector<checkpoint::SafetensorsTensor> written;
  for (const auto& [name, stored] : tensors) {
    written.push_back({name, stored.dtype, stored.shape, std::as_bytes(std::span(stored.bytes))});
  }
  checkpoint::WriteSafetensors(file, written);
}

// GPTQ: words along inputs; zero points less one, unless v2.
inline StoredTensors Gptq(const std::string& module, const QuantizedMatrix& matrix, bool v2) {
  StoredTensors files;
  const int64_t per_word = 32 / matrix.bits;
  // Packed by columns, then stored with the outputs of a word of inputs next to each other.
  std::vector<std::string> columns;
  for (int64_t output = 0; output < matrix.outputs; ++output) {
    columns.push_back(Packed(matrix.bits, matrix.inputs,
                             [&](int64_t input) { return matrix.Integer(output, input); }));
  }
  std::string words;
  for (int64_t word = 0; word < matrix.inputs / per_word; ++word) {
    for (const std::string& column : columns) words += column.substr(word * 4, 4);
  }
  files[module + "qweight"] = {"I32", {matrix.inputs / per_word, matrix.outputs}, words};
  std::string zeros, scales;
  for (int64_t group = 0; group < matrix.groups; ++group) {
    zeros += Packed(matrix.bits, matrix.outputs, [&](int64_t output) {
      return matrix.zeros[output * matrix.groups + group] - (v2 ? 0 : 1);
    });
    for (int64_t output = 0; output < matrix.outputs; ++output) {
      scales += BytesOf(matrix.scales[output * matrix.groups + group]);
    }
  }
  files[module + "qzeros"] = {"I32", {matrix.groups, matrix.outputs / per_word}, zeros};
  files[module + "scales"] = {"F16", {matrix.groups, matrix.outputs}, scales};
  files[module + "g_idx"] = {"I32", {matrix.inputs}, BytesOf(matrix.group_of)};
  return files;
}

// AWQ: words along outputs; a word has outputs 0, 2, 4, 6, 1, 3, 5, 7 from its lowest bits on.
inline StoredTensors Awq(const std::string& module, const QuantizedMatrix& matrix) {
  constexpr int kOrder[] = {0, 2, 4, 6, 1, 3, 5, 7};
  const auto output_of = [&](int64_t i) { return i / 8 * 8 + kOrder[i % 8]; };
  StoredTensors files;
  std::string words, zeros, scales;
  for (int64_t input = 0; input < matrix.inputs; ++input) {
    words +=
        Packed(4, matrix.outputs, [&](int64_t i) { return matrix.Integer(output_of(i), input); });
  }
  for (int64_t group = 0; group < matrix.groups; ++group) {
    zeros += Packed(4, matrix.outputs,
                    [&](int64_t i) { return matrix.zeros[output_of(i) * matrix.groups + group]; });
    for (int64_t output = 0; output < matrix.outputs; ++output) {
      scales += BytesOf(matrix.scales[output * matrix.groups + group]);
    }
  }
  files[module + "qweight"] = {"I32", {matrix.inputs, matrix.outputs / 8}, words};
  files[module + "qzeros"] = {"I32", {matrix.groups, matrix.outputs / 8}, zeros};
  files[module + "scales"] = {"F16", {matrix.groups, matrix.outputs}, scales};
  return files;
}

// compressed-tensors: rows of words of integers with an offset; zero points packed along outputs.
inline StoredTensors Compressed(const std::string& module, const QuantizedMatrix& matrix) {
  StoredTensors files;
  std::string words;
  for (int64_t output = 0; output < matrix.outputs; ++output) {
    words += Packed(matrix.bits, matrix.inputs,
                    [&](int64_t input) { return matrix.Integer(output, input); });
  }
  const int64_t per_word = 32 / matrix.bits;
  std::vector<std::string> columns;
  for (int64_t group = 0; group < matrix.groups; ++group) {
    columns.push_back(Packed(matrix.bits, matrix.outputs, [&](int64_t output) {
      return matrix.zeros[output * matrix.groups + group];
    }));
  }
  std::string zeros;
  for (int64_t word = 0; word < matrix.outputs / per_word; ++word) {
    for (const std::string& column : columns) zeros += column.substr(word * 4, 4);
  }
  files[module + "weight_packed"] = {"I32", {matrix.outputs, matrix.inputs / per_word}, words};
  files[module + "weight_shape"] = {
      "I64", {2}, BytesOf(std::vector<int64_t>{matrix.outputs, matrix.inputs})};
  files[module + "weight_scale"] = {"F16", {matrix.outputs, matrix.groups}, BytesOf(matrix.scales)};
  files[module + "weight_zero_point"] = {"I32", {matrix.outputs / per_word, matrix.groups}, zeros};
  return files;
}

}  // namespace triptych::published

#endif  // TRIPTYCH_TESTS_SUPPORT_QUANTIZED_FILES_H_
