#include "engine/checkpoint/tensors/quantized_matrices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "engine/base/bfloat16.h"
#include "engine/base/error.h"
#include "engine/base/float16.h"
#include "engine/checkpoint/tensors/open_tensors.h"
#include "engine/checkpoint/tensors/safetensors.h"
#include "tests/support/gguf_file.h"
#include "tests/support/quantized_files.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"

namespace triptych::checkpoint::quantized_matrices_test {
namespace {

using ::testing::ElementsAre;
using Layout = PublishedQuantization::Layout;

constexpr int64_t kOutputs = 16, kInputs = 48, kGroup = 16, kGroups = kInputs / kGroup;

using published::Compressed;
using published::Gptq;
using published::RandomScale;
using published::Stored;

struct Matrix : published::QuantizedMatrix {
  explicit Matrix(int of_bits, int64_t of_groups = kGroups)
      : QuantizedMatrix(of_bits, kOutputs, kInputs, of_groups,
                        static_cast<unsigned>(of_bits + of_groups)) {}
};
using Files = published::StoredTensors;

class QuantizedMatricesTest : public testing::Test {
 protected:
  std::shared_ptr<const TensorSource> Open(const Files& files,
                                           const PublishedQuantization& quantization,
                                           const ModelConfig& config = {}) const {
    published::Write(directory_.path() / kWeightsFile, files);
    return DecodeMatrices(OpenTensors(directory_.path()), quantization, config);
  }
  std::vector<float> Decoded(const Files& files, const PublishedQuantization& quantization) const {
    const auto source = Open(files, quantization);
    EXPECT_THAT(source->TensorNames(), ElementsAre("m.weight"));
    const StoredTensor& stored = *source->Find("m.weight");
    EXPECT_EQ(stored.dtype, "F32");
    EXPECT_THAT(stored.shape, ElementsAre(kOutputs, kInputs));
    std::vector<float> numbers(stored.bytes / sizeof(float));
    source->Read("m.weight", std::as_writable_bytes(std::span(numbers)));
    return numbers;
  }
  std::string Refusal(const Files& files, const PublishedQuantization& quantization) const {
    return RefusalAfter<LoadError>((directory_.path() / kWeightsFile).string() + ": tensor ",
                                   [&] { Decoded(files, quantization); });
  }

  const TempDir directory_;
};

PublishedQuantization GptqOf(int bits, bool v2 = false) {
  return {.layout = Layout::kGptq, .bits = bits, .added_to_zeros = v2 ? 0 : 1, .columns = kGroup};
}

TEST_F(QuantizedMatricesTest, Gptq) {
  for (const int bits : {4, 8}) {
    for (const bool v2 : {false, true}) {
      const Matrix matrix(bits);
      Files files = Gptq("m.", matrix, v2);
      EXPECT_EQ(Decoded(files, GptqOf(bits, v2)), matrix.Numbers()) << bits << v2;
      files.erase("m.g_idx");
      EXPECT_EQ(Decoded(files, GptqOf(bits, v2)), matrix.Numbers()) << bits << v2;
    }
  }
}

// desc_act: groups are of inputs anywhere.
TEST_F(QuantizedMatricesTest, GptqOfInputsInAnotherOrder) {
  Matrix matrix(4);
  std::mt19937 random(9);
  std::shuffle(matrix.group_of.begin(), matrix.group_of.end(), random);
  EXPECT_EQ(Decoded(Gptq("m.", matrix, false), GptqOf(4)), matrix.Numbers());
}

TEST_F(QuantizedMatricesTest, GptqOfWholeRows) {
  const Matrix matrix(4, 1);
  PublishedQuantization quantization = GptqOf(4);
  quantization.columns.reset();
  EXPECT_EQ(Decoded(Gptq("m.", matrix, false), quantization), matrix.Numbers());
}

TEST_F(QuantizedMatricesTest, Awq) {
  const Matrix matrix(4);
  EXPECT_EQ(
      Decoded(published::Awq("m.", matrix), {.layout = Layout::kAwq, .bits = 4, .columns = kGroup}),
      matrix.Numbers());
}

TEST_F(QuantizedMatricesTest, CompressedWords) {
  for (const int bits : {4, 8}) {
    Matrix matrix(bits);
    PublishedQuantization quantization = {
        .layout = Layout::kPacked, .bits = bits, .columns = kGroup};
    EXPECT_EQ(Decoded(Compressed("m.", matrix), quantization), matrix.Numbers()) << bits;
    // Groups of inputs in another order.
    std::mt19937 random(9);
    std::shuffle(matrix.group_of.begin(), matrix.group_of.end(), random);
    Files files = Compressed("m.", matrix);
    files["m.weight_g_idx"] = {"I32", {kInputs}, BytesOf(matrix.group_of)};
    EXPECT_EQ(Decoded(files, quantization), matrix.Numbers()) << bits;
    // Symmetric: integers from -8 or -128.
    matrix.zeros.assign(matrix.zeros.size(), 1 << (bits - 1));
    files = Compressed("m.", matrix);
    files["m.weight_g_idx"] = {"I32", {kInputs}, BytesOf(matrix.group_of)};
    files.erase("m.weight_zero_point");
    quantization.zero_points = false;
    EXPECT_EQ(Decoded(files, quantization), matrix.Numbers()) << bits;
  }
}

// 45 inputs fill five words and five eighths of a sixth.
TEST_F(QuantizedMatricesTest, ALastWordMayHoldFewer) {
  Files files = Compressed("m.", Matrix(4, 1));
  files["m.weight_shape"].bytes = BytesOf(std::vector<int64_t>{kOutputs, 45});
  const auto source = Open(files, {.layout = Layout::kPacked, .bits = 4});
  ASSERT_THAT(source->Find("m.weight")->shape, ElementsAre(kOutputs, 45));
  std::vector<float> numbers(kOutputs * 45);
  source->Read("m.weight", std::as_writable_bytes(std::span(numbers)));
  const std::vector<float> whole = Matrix(4, 1).Numbers();
  for (int64_t i = 0; i < kOutputs * 45; ++i) {
    EXPECT_EQ(numbers[i], whole[i / 45 * kInputs + i % 45]);
  }
}

// Scales of the whole matrix, of each row (in two shapes) and of groups; zero points as the scales.
TEST_F(QuantizedMatricesTest, IntegersOfEightBits) {
  std::mt19937 random(4);
  std::string integers;
  for (int64_t i = 0; i < kOutputs * kInputs; ++i) integers += static_cast<char>(random());
  struct Case {
    std::vector<int64_t> shape;
    std::optional<int64_t> columns;
  };
  for (const auto& [shape, columns] : std::vector<Case>{{{}, {}},
                                                        {{1}, {}},
                                                        {{1, 1}, {}},
                                                        {{kOutputs}, {}},
                                                        {{kOutputs, 1}, {}},
                                                        {{kOutputs, kGroups}, kGroup}}) {
    const int64_t rows = shape.empty() ? 1 : shape[0];
    const int64_t groups = shape.size() < 2 ? 1 : shape[1];
    std::vector<float> scales;
    std::string zeros;
    for (int64_t i = 0; i < rows * groups; ++i) {
      scales.push_back(FromFloat16(RandomScale(random)));
      zeros += static_cast<char>(random());
    }
    Files files = {{"m.weight", {"I8", {kOutputs, kInputs}, integers}},
                   {"m.weight_scale", {"F32", shape, BytesOf(scales)}},
                   {"m.weight_zero_point", {"I8", shape, zeros}}};
    for (const bool zero_points : {true, false}) {
      if (!zero_points) files.erase("m.weight_zero_point");
      std::vector<float> expected;
      for (int64_t i = 0; i < kOutputs * kInputs; ++i) {
        const int64_t at = (rows == 1 ? 0 : i / kInputs) * groups + i % kInputs * groups / kInputs;
        const double zero = zero_points ? static_cast<int8_t>(zeros[at]) : 0;
        expected.push_back(
            static_cast<float>((static_cast<int8_t>(integers[i]) - zero) * scales[at]));
      }
      EXPECT_EQ(
          Decoded(files,
                  {.layout = Layout::kIntegers, .zero_points = zero_points, .columns = columns}),
          expected)
          << ShapeText(shape) << zero_points;
    }
  }
}

// By the definition of the format: 4 bits of exponent with a bias of 7, 3 of fraction, NaN at 0x7f.
double Float8(uint8_t bits) {
  const int exponent = bits >> 3 & 15, fraction = bits & 7;
  const double magnitude = exponent == 0 ? fraction / 8.0 * std::pow(2, -6)
                                         : (1 + fraction / 8.0) * std::pow(2, exponent - 7);
  return bits >= 128 ? -magnitude : magnitude;
}

TEST_F(QuantizedMatricesTest, Float8) {
  std::string bytes;
  for (int64_t i = 0; i < kOutputs * kInputs; ++i) {
    const auto bits = static_cast<uint8_t>(i * 37);
    bytes += static_cast<char>((bits & 0x7f) == 0x7f ? 0 : bits);
  }
  struct Case {
    std::vector<int64_t> shape;  // of the scales
    int64_t rows;
    std::optional<int64_t> columns;
    const char* name = "m.weight_scale";
  };
  for (const auto& [shape, rows, columns, name] :
       std::vector<Case>{{{}, 1, {}},
                         {{kOutputs, 1}, 1, {}},
                         {{2, 3}, 8, 16, "m.weight_scale_inv"},
                         {{2, 2}, 13, 40, "m.weight_scale_inv"},  // smaller blocks at the ends
                         {{1, 1}, 128, 128, "m.weight_scale_inv"}}) {
    const int64_t across = shape.size() < 2 ? 1 : shape[1];
    std::vector<float> scales;
    for (int64_t i = 0; i < (shape.empty() ? 1 : shape[0] * across); ++i) {
      scales.push_back(0.013F * static_cast<float>(i + 1));
    }
    const Files files = {{"m.weight", {"F8_E4M3", {kOutputs, kInputs}, bytes}},
                         {name, {"F32", shape, BytesOf(scales)}}};
    std::vector<float> expected;
    for (int64_t i = 0; i < kOutputs * kInputs; ++i) {
      const int64_t row = shape.empty() ? 0 : i / kInputs / rows;
      const int64_t column = columns ? i % kInputs / *columns : 0;
      expected.push_back(static_cast<float>(Float8(static_cast<uint8_t>(bytes[i])) *
                                            scales[row * across + column]));
    }
    EXPECT_EQ(
        Decoded(
            files,
            {.layout = Layout::kFloat8, .zero_points = false, .rows = rows, .columns = columns}),
        expected)
        << ShapeText(shape);
  }
}

TEST_F(QuantizedMatricesTest, OtherTensorsStayOrAreLeftOut) {
  Files files = Gptq("m.", Matrix(4), false);
  for (auto it = files.begin(); it != files.end();) {  // of a layer
    auto moved = files.extract(it++);
    if (moved.key().starts_with("m.")) moved.key() = "l.self_attn.o_proj." + moved.key().substr(2);
    files.insert(std::move(moved));
  }
  files["l.self_attn.k_scale"] = {"F32", {1}, "abcd"};
  files["l.self_attn.o_proj.input_scale"] = {"F32", {1}, "abcd"};
  files["l.norm.weight"] = {"F16", {1}, "ab"};
  files["l.self_attn.o_proj.bias"] = {"F16", {1}, std::string(2, '\0')};
  EXPECT_THAT(Open(files, GptqOf(4))->TensorNames(),
              ElementsAre("l.norm.weight", "l.self_attn.o_proj.weight"));
  ModelConfig with_bias;
  with_bias.attention_output_bias = true;
  EXPECT_NE(Open(files, GptqOf(4), with_bias)->Find("l.self_attn.o_proj.bias"), nullptr);
  files["l.self_attn.o_proj.bias"].bytes[1] = 1;
  EXPECT_NE(Open(files, GptqOf(4))->Find("l.self_attn.o_proj.bias"), nullptr);
  EXPECT_EQ(Open(files, GptqOf(4))->NameInFiles("l.self_attn.o_proj.weight"),
            "l.self_attn.o_proj.qweight");
}

TEST_F(QuantizedMatricesTest, RefusesPartsThatDoNotFit) {
  const Files good = Gptq("m.", Matrix(4), false);
  const auto without = [&](const char* name) {
    Files files = good;
    files.erase(name);
    return Refusal(files, GptqOf(4));
  };
  EXPECT_EQ(without("m.scales"), "m.scales is missing");
  EXPECT_EQ(without("m.qzeros"), "m.qzeros is missing");
  const auto with = [&](const char* name, const Stored& stored) {
    Files files = good;
    files[name] = stored;
    return Refusal(files, GptqOf(4));
  };
  EXPECT_EQ(with("m.scales", {"I32", {1}, "abcd"}),
            "m.scales has dtype I32; allowed: F16, BF16, F32");
  EXPECT_EQ(with("m.scales", {"F16", {2, 16}, std::string(64, 'x')}),
            "m.scales has shape [2, 16]; the quantization needs [3, 16]");
  EXPECT_EQ(with("m.qzeros", {"I32", {3, 1}, std::string(12, 'x')}),
            "m.qzeros has shape [3, 1]; the quantization needs [3, 2]");
  EXPECT_EQ(with("m.g_idx", {"I32", {1}, "abcd"}),
            "m.g_idx has shape [1]; the quantization needs [48]");
  EXPECT_EQ(with("m.qweight", {"I32", {1}, "abcd"}),
            "m.qweight has shape [1]; allowed: two dimensions of at least 1");
  EXPECT_EQ(with("m.qweight", {"I32", {int64_t{1} << 60, 0}, ""}),
            "m.qweight has shape [1152921504606846976, 0]; allowed: two dimensions of at least 1");
  for (const int32_t group : {-1, 3}) {
    Files files = good;
    files["m.g_idx"].bytes.replace(8, 4, BytesOf(group));
    EXPECT_EQ(Refusal(files, GptqOf(4)),
              "m.g_idx holds " + std::to_string(group) + "; allowed: groups from 0 to 2");
  }
  EXPECT_EQ(with("m.weight", {"F32", {1}, "abcd"}).substr(0, 18), "m.weight is there,");

  const PublishedQuantization packed = {.layout = Layout::kPacked, .bits = 4, .columns = kGroup};
  for (const int64_t inputs : {int64_t{-1}, int64_t{40}, int64_t{49}, INT64_MAX, INT64_MIN}) {
    Files files = Compressed("m.", Matrix(4));
    files["m.weight_shape"].bytes = BytesOf(std::vector<int64_t>{kOutputs, inputs});
    EXPECT_EQ(Refusal(files, packed),
              "m.weight_shape holds [16, " + std::to_string(inputs) +
                  "]; m.weight_packed has shape [16, 6] of 8 integers each");
  }
  const Files integers = {{"m.weight", {"U8", {1, 1}, "x"}}};
  EXPECT_EQ(Refusal(integers, {.layout = Layout::kFloat8}),
            "m.weight has dtype U8; allowed: F8_E4M3");
}

}  // namespace
}  // namespace triptych::checkpoint::quantized_matrices_test
