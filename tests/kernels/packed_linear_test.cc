#include "engine/kernels/packed_linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <functional>
#include <iterator>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/base/ceil_div.h"
#include "engine/kernels/elements.h"
#include "engine/kernels/packed_format.h"
#include "tests/support/instruction_sets.h"

namespace triptych::kernels::packed_linear_test {
namespace {

struct Case {
  PackedLinear::Shape shape;
  int64_t rows;
  bool bias = false;
};

// Inputs rounded as products of this format round them.
std::vector<double> Rounded(WeightFormat format, std::span<const float> x) {
  std::vector<double> rounded(x.begin(), x.end());
  if (format == WeightFormat::kBFloat16) {
    for (double& value : rounded) value = ToFloat(ToBFloat16(static_cast<float>(value)));
  }
  if (!IsInteger(format)) return rounded;
  for (size_t begin = 0; begin < x.size(); begin += kQuantizationGroup) {
    const size_t end = std::min(x.size(), begin + kQuantizationGroup);
    float most = 0;
    for (size_t i = begin; i < end; ++i) most = std::max(most, std::abs(x[i]));
    const float scale = most / 127, steps = 127 / most;
    for (size_t i = begin; i < end; ++i) {
      rounded[i] = most == 0 ? 0 : std::nearbyint(x[i] * steps) * static_cast<double>(scale);
    }
  }
  return rounded;
}

// A layer and rows of inputs, with NaN before and after the inputs.
class Layer {
 public:
  static constexpr int64_t kGuard = 64;

  // weight_of: the weight of an output and an input; if absent, normal random numbers.
  Layer(const Case& c, WeightFormat format,
        const std::function<float(int64_t, int64_t)>& weight_of = {})
      : case_(c), format_(format) {
    std::mt19937_64 generator(1);
    std::normal_distribution<float> normal;
    const auto [groups, outputs, inputs] = c.shape;
    std::vector<float> weight(groups * outputs * inputs);
    for (int64_t i = 0; i < std::ssize(weight); ++i) {
      weight[i] = weight_of ? weight_of(i / inputs, i % inputs) : normal(generator);
    }
    x_.assign(c.rows * groups * inputs + 2 * kGuard, std::numeric_limits<float>::quiet_NaN());
    for (size_t i = kGuard; i + kGuard < x_.size(); ++i) x_[i] = normal(generator);
    if (c.bias) bias_.resize(groups * outputs);
    for (float& value : bias_) value = normal(generator);
    ThreadPool pool(2);
    packed_ = PackedLinear(c.shape, format,
                           {{.stored = TensorFormat::kFloat32,
                             .weight = weight.data(),
                             .bias = c.bias ? bias_.data() : nullptr,
                             .outputs = groups * outputs}},
                           pool);
    // Rounding does not depend on a weight's position.
    const PackedFormat packed = Packed(format);
    for (int64_t output = 0; output < groups * outputs; ++output) {
      const std::span<float> row(&weight[output * inputs], inputs);
      for (int64_t k = 0; k < inputs; k += packed.inputs) {
        std::vector<std::byte> unit(packed.panel_bytes());
        const auto of_unit = row.subspan(k, std::min(packed.inputs, inputs - k));
        PackUnit(format, of_unit, 0, unit.data());
        UnpackUnit(format, unit.data(), 0, of_unit);
      }
    }
    weight_ = std::move(weight);
  }

  float* x(int64_t row) {
    return x_.data() + kGuard + row * case_.shape.groups * case_.shape.inputs;
  }
  const PackedLinear& packed() const { return packed_; }
  // Weight k of an output; outputs are counted over all groups.
  float weight(int64_t output, int64_t k) const { return weight_[output * case_.shape.inputs + k]; }

  // Rows first to first + rows - 1, in one call.
  std::vector<float> Apply(int64_t first, int64_t rows, KernelContext& context) {
    const int64_t size = rows * case_.shape.groups * case_.shape.outputs;
    std::vector<float> y(size + 2 * kGuard, 12345.0f);
    packed_.Apply(x(first), rows, y.data() + kGuard, context);
    for (int64_t i = 0; i < kGuard; ++i) {
      EXPECT_EQ(y[i], 12345.0f);
      EXPECT_EQ(y[kGuard + size + i], 12345.0f);
    }
    return {y.begin() + kGuard, y.begin() + kGuard + size};
  }
  std::vector<float> Apply(KernelContext& context) { return Apply(0, case_.rows, context); }

  // Compares with the definition in float64; the tolerance depends on the sum of absolute products.
  void ExpectNear(const std::vector<float>& y) {
    const auto [groups, outputs, inputs] = case_.shape;
    ASSERT_EQ(std::ssize(y), case_.rows * groups * outputs);
    for (int64_t row = 0; row < case_.rows; ++row) {
      for (int64_t g = 0; g < groups; ++g) {
        const std::vector<double> in =
            Rounded(format_, {x(row) + g * inputs, static_cast<size_t>(inputs)});
        for (int64_t n = 0; n < outputs; ++n) {
          const int64_t output = g * outputs + n;
          double sum = case_.bias ? bias_[output] : 0, size = std::abs(sum);
          for (int64_t k = 0; k < inputs; ++k) {
            const double product = in[k] * weight(output, k);
            sum += product;
            size += std::abs(product);
          }
          // Each float32 addition is off by at most 2^-24 of its result. With integers there are
          // fewer: one per group, whose exact sum is scaled with two such errors.
          const double roundings = IsInteger(format_)
                                       ? 3.0 * CeilDiv(inputs, kQuantizationGroup) + 2
                                       : static_cast<double>(inputs) + 2;
          ASSERT_NEAR(y[row * groups * outputs + output], sum, size * roundings * std::exp2(-24))
              << "row " << row << " group " << g << " output " << n;
        }
      }
    }
  }

 private:
  Case case_;
  WeightFormat format_;
  std::vector<float> weight_;  // as packed
  std::vector<float> bias_;
  std::vector<float> x_;
  PackedLinear packed_;
};

// Every instruction set (forced) with every format.
class PackedLinearTest : public testing::TestWithParam<
                             std::tuple<int64_t, std::pair<const std::string, WeightFormat>>> {
 protected:
  PackedLinearTest() : set_(std::get<0>(GetParam())), format_(std::get<1>(GetParam()).second) {}

  const UsedInstructionSet set_;
  const WeightFormat format_;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  // Around the 32 outputs of a panel, the pairs of bfloat16, and the rows of a tile.
  for (const int64_t outputs : {1, 5, 31, 32, 33, 67, 129, 200}) {
    for (const int64_t inputs : {1, 2, 3, 17, 64, 101}) {
      for (const int64_t rows : {1, 13}) {
        cases.push_back({{1, outputs, inputs}, rows, (outputs + inputs) % 2 == 0});
      }
    }
  }
  for (int64_t rows = 1; rows <= 13; ++rows) cases.push_back({{1, 161, 23}, rows, true});
  for (const int64_t rows : {33, 100}) {
    cases.push_back({{1, 70, 37}, rows});
    cases.push_back({{1, 37, 257}, rows, true});
  }
  for (const int64_t groups : {2, 7}) {
    for (const int64_t rows : {1, 3, 13, 100}) {
      cases.push_back({{groups, 33, 19}, rows, true});
      cases.push_back({{groups, 6, 32}, rows});
    }
  }
  // Prefetched weights.
  for (const int64_t rows : {1, 4, 8, 29}) cases.push_back({{1, 2100, 1024}, rows});
  // Weights that several tiles read in parts.
  for (const int64_t rows : {5, 29}) cases.push_back({{1, 70, 4001}, rows, true});
  // Rows of x that are a multiple of 4 KiB apart.
  for (const int64_t rows : {1, 2, 3, 12}) {
    cases.push_back({{1, 40, 1024}, rows});
    cases.push_back({{2, 3, 1024}, rows});
    cases.push_back({{32, 3, 512}, rows});  // inputs of one byte; of two bytes
  }
  return cases;
}

TEST_P(PackedLinearTest, IsTheDefinition) {
  KernelContext context(3);
  for (const Case& c : Cases()) {
    SCOPED_TRACE(testing::Message() << c.shape.groups << " groups of " << c.shape.outputs << " x "
                                    << c.shape.inputs << ", rows " << c.rows);
    Layer layer(c, format_);
    layer.ExpectNear(layer.Apply(context));
    if (testing::Test::HasFatalFailure()) return;
  }
}

// Bit-identical: any rows of a batch by themselves, on any number of threads.
TEST_P(PackedLinearTest, RowsAreTheSameInEveryBatch) {
  for (const PackedLinear::Shape& shape :
       {PackedLinear::Shape{1, 161, 301}, {1, 515, 1024}, {3, 37, 129}, {1, 70, 4001}}) {
    constexpr int64_t kRows = 101;
    Layer layer(Case{shape, kRows, true}, format_);
    KernelContext one(1);
    const std::vector<float> all = layer.Apply(one);
    const int64_t width = shape.groups * shape.outputs;
    for (const int threads : {1, 2, 3, 5}) {
      KernelContext context(threads);
      EXPECT_EQ(layer.Apply(context), all) << threads << " threads";
      for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 33, 100}) {
        const int64_t first = kRows - rows;
        const std::vector<float> expected(all.begin() + first * width, all.end());
        EXPECT_EQ(layer.Apply(first, rows, context), expected) << rows << " rows";
      }
    }
  }
}

// The largest sums of integers: the largest inputs and weights, with equal and with alternating
// signs.
TEST_P(PackedLinearTest, LargestSums) {
  KernelContext context(2);
  for (const int64_t inputs : {32, 64, 45}) {
    const auto weight_of = [this](int64_t output, int64_t k) -> float {
      // The first of a group is the smallest 4-bit integer.
      const float most = format_ == WeightFormat::kInt4 && k % kQuantizationGroup == 0 ? -8 : 7;
      return output % 2 == 0 ? most : -most;
    };
    Layer layer(Case{{1, 40, inputs}, 9}, format_, weight_of);
    for (int64_t row = 0; row < 9; ++row) {
      for (int64_t k = 0; k < inputs; ++k) {
        layer.x(row)[k] = (row % 3 == 1) != (row % 3 == 2 && k % 2 == 1) ? -1.0f : 1.0f;
      }
    }
    layer.ExpectNear(layer.Apply(context));
  }
}

// Strided rows are bit-identical to contiguous ones.
TEST_P(PackedLinearTest, Strides) {
  KernelContext context(3);
  for (const int64_t rows : {1, 5, 40}) {
    for (const int64_t gap : {3, 1024 - 2 * 20}) {  // with the second, rows are 4 KiB apart
      const PackedLinear::Shape shape{2, 37, 17};
      Layer layer(Case{shape, rows, true}, format_);
      const std::vector<float> expected = layer.Apply(context);
      const PackedLinear::Strides in{2 * 20 + gap, 20}, out{2 * 41 + 1, 41};
      std::vector<float> x(rows * in.row, std::numeric_limits<float>::quiet_NaN());
      std::vector<float> y(rows * out.row, 12345.0f);
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t i = 0; i < 2 * 17; ++i) {
          x[row * in.row + i / 17 * in.group + i % 17] = layer.x(row)[i];
        }
      }
      layer.packed().Apply(x.data(), in, rows, y.data(), out, context);
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t i = 0; i < out.row; ++i) {
          const int64_t group = i / 41, output = i % 41;
          const bool inside = group < 2 && output < 37;
          ASSERT_EQ(y[row * out.row + i],
                    inside ? expected[(row * 2 + group) * 37 + output] : 12345.0f);
        }
      }
    }
  }
}

// One group's product by itself is bit-identical to its part in all groups' product, in any batch.
TEST_P(PackedLinearTest, OnlyGroups) {
  for (const PackedLinear::Shape& shape :
       {PackedLinear::Shape{1, 70, 33}, {4, 37, 17}, {3, 200, 1024}}) {
    constexpr int64_t kRows = 40;
    Layer layer(Case{shape, kRows, true}, format_);
    const auto [groups, outputs, inputs] = shape;
    for (const int threads : {1, 3}) {
      KernelContext context(threads);
      const std::vector<float> all = layer.Apply(context);
      for (int64_t group = 0; group < groups; ++group) {
        for (const int64_t rows : {int64_t{0}, int64_t{1}, int64_t{7}, kRows}) {
          const int64_t x_stride = inputs + 3, y_stride = outputs + 5;
          std::vector<float> x(rows * x_stride + 1, std::numeric_limits<float>::quiet_NaN());
          std::vector<float> y(rows * y_stride + 1, 12345.0f);
          for (int64_t row = 0; row < rows; ++row) {
            std::copy_n(layer.x(row) + group * inputs, inputs, &x[row * x_stride]);
          }
          layer.packed().ApplyGroup(group, x.data(), x_stride, rows, y.data(), y_stride, context);
          for (int64_t i = 0; i < std::ssize(y); ++i) {
            const int64_t row = i / y_stride, output = i % y_stride;
            const bool inside = row < rows && output < outputs;
            ASSERT_EQ(y[i], inside ? all[(row * groups + group) * outputs + output] : 12345.0f)
                << "group " << group << " of " << groups << ", rows " << rows;
          }
        }
      }
    }
  }
}

// Groups that multiply rows of their own give the bits of ApplyGroup, whatever the other parts are.
TEST_P(PackedLinearTest, RoutedRows) {
  for (const PackedLinear::Shape& shape :
       {PackedLinear::Shape{5, 37, 17}, {3, 200, 1024}, {6, 515, 96}}) {
    constexpr int64_t kRows = 40;
    Layer layer(Case{shape, kRows, true}, format_);
    const auto [groups, outputs, inputs] = shape;
    // Rows of x, in reverse; the last group has most of them, the second one none.
    std::vector<PackedLinear::RoutedRows> parts;
    std::vector<int64_t> from;
    for (int64_t group = 0; group < groups; ++group) {
      const int64_t rows = group == groups - 1 ? kRows : group == 1 ? 0 : group + 1;
      if (rows > 0) parts.push_back({group, std::ssize(from), rows});
      for (int64_t row = 0; row < rows; ++row) from.push_back(kRows - 1 - row);
    }
    // x: [rows, inputs], the first group's part of the layer's rows
    std::vector<float> x(kRows * inputs);
    for (int64_t row = 0; row < kRows; ++row) {
      std::copy_n(layer.x(row), inputs, &x[row * inputs]);
    }
    for (const int threads : {1, 3}) {
      KernelContext context(threads);
      std::vector<float> y(std::ssize(from) * outputs + 1, 12345.0f);
      layer.packed().ApplyRouted(parts, from.data(), x.data(), y.data(), context);
      EXPECT_EQ(y.back(), 12345.0f);
      for (const auto& [group, first, rows] : parts) {
        for (int64_t row = first; row < first + rows; ++row) {
          std::vector<float> expected(outputs);
          layer.packed().ApplyGroup(group, &x[from[row] * inputs], inputs, 1, expected.data(),
                                    outputs, context);
          const auto begin = y.begin() + row * outputs;
          ASSERT_EQ(std::vector<float>(begin, begin + outputs), expected)
              << "group " << group << ", row " << row;
        }
      }
    }
  }
}

// A layer that is packed group by group is the layer that is packed at once.
TEST_P(PackedLinearTest, GroupsPackedOneByOne) {
  const PackedLinear::Shape shape{3, 37, 65};
  const int64_t groups = shape.groups, outputs = shape.outputs, inputs = shape.inputs;
  std::mt19937_64 generator(4);
  std::normal_distribution<float> normal;
  std::vector<float> weight(groups * outputs * inputs), bias(groups * outputs), x(groups * inputs);
  for (std::vector<float>* numbers : {&weight, &bias, &x}) {
    for (float& number : *numbers) number = normal(generator);
  }
  const auto rows = [&](int64_t group, int64_t first, int64_t count) {
    const int64_t output = group * outputs + first;
    return PackedLinear::Rows{.stored = TensorFormat::kFloat32,
                              .weight = &weight[output * inputs],
                              .bias = &bias[output],
                              .outputs = count};
  };
  KernelContext context(2);
  const PackedLinear whole(shape, format_, {rows(0, 0, groups * outputs)}, context.pool);
  PackedLinear parts(shape, format_);
  for (int64_t group = groups - 1; group >= 0; --group) {
    parts.PackGroup(group, {rows(group, 0, 5), rows(group, 5, outputs - 5)}, context.pool);
  }
  std::vector<float> expected(groups * outputs), y(groups * outputs);
  whole.Apply(x.data(), 1, expected.data(), context);
  parts.Apply(x.data(), 1, y.data(), context);
  EXPECT_EQ(y, expected);
}

// Infinity stays too: with integers, every result that an infinite input contributes to is NaN.
TEST_P(PackedLinearTest, NanStaysInItsRow) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::bit_cast<float>(0x7fffffffu),
        std::bit_cast<float>(0xff800001u), std::numeric_limits<float>::infinity()}) {
    Layer layer(Case{{1, 50, 40}, 10}, format_);
    KernelContext context(2);
    const std::vector<float> clean = layer.Apply(context);
    layer.x(4)[3] = bad;
    const std::vector<float> y = layer.Apply(context);
    for (int64_t i = 0; i < std::ssize(y); ++i) {
      if (i / 50 == 4) {
        EXPECT_FALSE(std::isfinite(y[i]));
      } else {
        EXPECT_EQ(y[i], clean[i]);
      }
    }
  }
}

// With integers, the smallest inputs become zero; from 2^-109, results are as exact as for others.
TEST_P(PackedLinearTest, SmallInputs) {
  for (const float small : {0.0f, 0x1p-149f, 0x1p-126f, 0x1p-109f}) {
    Layer layer(Case{{1, 33, 70}, 3}, format_);
    KernelContext context(1);
    std::fill_n(layer.x(1), 70, small);
    const std::vector<float> y = layer.Apply(context);
    for (int64_t n = 0; n < 33; ++n) {
      double sum = 0;
      for (int64_t k = 0; k < 70; ++k) sum += layer.weight(n, k) * static_cast<double>(small);
      if (small == 0x1p-109f) {
        EXPECT_NEAR(y[33 + n], sum, 70 * 4 * 0x1p-24 * small);
      } else if (IsInteger(format_)) {
        EXPECT_EQ(y[33 + n], 0);
      } else {
        EXPECT_NEAR(y[33 + n], sum,
                    70 * 4 * small);  // rounded by bfloat16, or flushed by processors
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, PackedLinearTest,
                         testing::Combine(testing::ValuesIn(InstructionSets()),
                                          testing::ValuesIn(Names<WeightFormat>())),
                         [](const auto& instance) {
                           return std::string(hwy::TargetName(std::get<0>(instance.param))) + "_" +
                                  std::get<1>(instance.param).first;
                         });

using BFloat16InputsTest = InstructionSetTest;

// Inputs are rounded to nearest, ties to even: shown by the identity matrix.
TEST_P(BFloat16InputsTest, AreRoundedToNearest) {
  const std::vector<float> inputs = {1.0f,
                                     1.0f + 0x1p-8f,             // a tie, down to even
                                     1.0f + 3 * 0x1p-8f,         // a tie, up to even
                                     1.0f + 0x1p-8f + 0x1p-20f,  // just above a tie
                                     -1.0f - 0x1p-8f,
                                     -0.0f,
                                     0x1.fffffep127f,  // rounds to infinity
                                     std::numeric_limits<float>::infinity(),
                                     3.14159274f};
  const auto n = std::ssize(inputs);
  // One group of one input each, so that nothing is multiplied by infinity.
  const std::vector<uint16_t> ones(n, ToBFloat16(1));
  KernelContext context(1);
  const PackedLinear identity({n, 1, 1}, WeightFormat::kBFloat16,
                              {{TensorFormat::kBFloat16, ones.data(), nullptr, n}}, context.pool);
  std::vector<float> y(n);
  identity.Apply(inputs.data(), 1, y.data(), context);
  for (int64_t i = 0; i < n; ++i) EXPECT_EQ(y[i], ToFloat(ToBFloat16(inputs[i]))) << inputs[i];
}

// Rows longer than a vector are rounded in the same way.
TEST_P(BFloat16InputsTest, LongRows) {
  constexpr int64_t kInputs = 67;
  std::vector<float> inputs(kInputs);
  for (int64_t i = 0; i < kInputs; ++i) {
    inputs[i] = std::ldexp(1.0f + static_cast<float>(i) * 0x1p-8f, static_cast<int>(i % 9) - 4);
  }
  std::vector<uint16_t> identity(kInputs * kInputs, ToBFloat16(0));
  for (int64_t i = 0; i < kInputs; ++i) identity[i * kInputs + i] = ToBFloat16(1);
  KernelContext context(1);
  const PackedLinear layer({1, kInputs, kInputs}, WeightFormat::kBFloat16,
                           {{TensorFormat::kBFloat16, identity.data(), nullptr, kInputs}},
                           context.pool);
  std::vector<float> y(kInputs);
  layer.Apply(inputs.data(), 1, y.data(), context);
  for (int64_t i = 0; i < kInputs; ++i) EXPECT_EQ(y[i], ToFloat(ToBFloat16(inputs[i]))) << i;
}

INSTANTIATE_TEST_SUITE_P(Targets, BFloat16InputsTest, testing::ValuesIn(InstructionSets()),
                         InstructionSetName);

TEST(PackedLinear, CopiesWeights) {
  for (const auto& [name, format] : Names<WeightFormat>()) {
    SCOPED_TRACE(name);
    for (const PackedLinear::Shape& shape :
         {PackedLinear::Shape{1, 1, 1}, {1, 33, 7}, {1, 64, 16}, {1, 301, 129}}) {
      const Layer layer(Case{shape, 0, true}, format);
      for (const int threads : {1, 3}) {
        KernelContext context(threads);
        for (const int64_t rows : {0, 1, 5, 600}) {  // some outputs repeat
          std::vector<int64_t> outputs(rows);
          for (int64_t row = 0; row < rows; ++row) outputs[row] = (row * 97 + 32) % shape.outputs;
          std::vector<float> y(rows * shape.inputs + 1, 12345.0f);
          layer.packed().CopyWeights(outputs.data(), rows, y.data(), context);
          EXPECT_EQ(y.back(), 12345.0f);
          for (int64_t i = 0; i < rows * shape.inputs; ++i) {
            ASSERT_EQ(y[i], layer.weight(outputs[i / shape.inputs], i % shape.inputs));
          }
        }
      }
    }
  }
}

TEST(PackedLinear, RoundsFromEitherTensor) {
  const std::vector<float> weight = {1, -2, 0.5f, 3, 0, -0.25f};
  std::vector<uint16_t> narrow(weight.size());
  std::transform(weight.begin(), weight.end(), narrow.begin(), ToBFloat16);
  KernelContext context(1);
  const std::vector<float> x = {1, 2, 3};
  for (const auto& [name, format] : Names<WeightFormat>()) {
    std::vector<float> a(2), b(2);
    PackedLinear({1, 2, 3}, format, {{TensorFormat::kFloat32, weight.data(), nullptr, 2}},
                 context.pool)
        .Apply(x.data(), 1, a.data(), context);
    PackedLinear({1, 2, 3}, format, {{TensorFormat::kBFloat16, narrow.data(), nullptr, 2}},
                 context.pool)
        .Apply(x.data(), 1, b.data(), context);
    EXPECT_EQ(a, b) << name;
  }
}

// Panels begin and end inside of stored tensors.
TEST(PackedLinear, RowsOfSeveralTensorsFollowOneAnother) {
  constexpr int64_t kInputs = 5;
  const PackedLinear::Shape shape{.groups = 2, .outputs = 40, .inputs = kInputs};
  std::mt19937_64 generator(3);
  std::normal_distribution<float> normal;
  std::vector<float> weight(80 * kInputs), bias(80), x(2 * kInputs);
  for (std::vector<float>* values : {&weight, &bias, &x}) {
    for (float& value : *values) value = FromBFloat16(ToBFloat16(normal(generator)));
  }
  std::fill(bias.begin() + 33, bias.begin() + 70, 0.0f);  // the second tensor has no bias
  std::vector<uint16_t> narrow(weight.size());
  std::transform(weight.begin(), weight.end(), narrow.begin(), ToBFloat16);
  KernelContext context(2);
  for (const auto& [name, format] : Names<WeightFormat>()) {
    std::vector<float> whole(80), parts(80);
    PackedLinear(shape, format, {{TensorFormat::kFloat32, weight.data(), bias.data(), 80}},
                 context.pool)
        .Apply(x.data(), 1, whole.data(), context);
    PackedLinear(shape, format,
                 {{TensorFormat::kFloat32, weight.data(), bias.data(), 33},
                  {TensorFormat::kBFloat16, narrow.data() + 33 * kInputs, nullptr, 37},
                  {TensorFormat::kFloat32, weight.data() + 70 * kInputs, bias.data() + 70, 10}},
                 context.pool)
        .Apply(x.data(), 1, parts.data(), context);
    EXPECT_EQ(whole, parts) << name;
  }
}

TEST(PackedLinear, KeepsItsShapeAndFormat) {
  const std::vector<uint16_t> weight(6);
  ThreadPool pool(1);
  const PackedLinear layer({1, 2, 3}, WeightFormat::kInt8,
                           {{TensorFormat::kBFloat16, weight.data(), nullptr, 2}}, pool);
  EXPECT_EQ(layer.shape().outputs, 2);
  EXPECT_EQ(layer.shape().inputs, 3);
  EXPECT_EQ(layer.format(), WeightFormat::kInt8);
  EXPECT_EQ(PackedLinear().shape().outputs, 0);
}

TEST(PackedLinear, NoRowsIsNothing) {
  Layer layer(Case{{1, 5, 3}, 0}, WeightFormat::kFloat32);
  KernelContext context(2);
  EXPECT_TRUE(layer.Apply(context).empty());
}

}  // namespace
}  // namespace triptych::kernels::packed_linear_test
