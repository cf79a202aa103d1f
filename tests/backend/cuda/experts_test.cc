#include "engine/backend/cuda/experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "engine/backend/cuda/device_memory.h"
#include "engine/backend/cuda/row_kernels.h"
#include "tests/backend/cuda/cuda_test.h"

namespace triptych::cuda::experts_test {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

template <typename T>
std::vector<T> Read(const DeviceArray<T>& from) {
  std::vector<T> values(static_cast<size_t>(from.size()));
  Check(cudaMemcpy(values.data(), from.get(), from.bytes(), cudaMemcpyDeviceToHost));
  return values;
}

std::vector<float> Normal(int64_t size, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(static_cast<size_t>(size));
  for (float& number : numbers) number = normal(generator);
  return numbers;
}

std::vector<BFloat16> Rounded(const std::vector<float>& numbers) {
  std::vector<BFloat16> rounded;
  for (const float number : numbers) rounded.push_back(__float2bfloat16(number));
  return rounded;
}

// The product of a row of x and a row of w in float64.
template <typename W>
double Dot(const BFloat16* x, const W* w, int64_t size) {
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) {
    sum += double{__bfloat162float(x[i])} * double{static_cast<float>(w[i])};
  }
  return sum;
}

// A router with its weights on the host, too.
struct Router {
  ExpertRouter rules;
  std::vector<float> matrix;
  std::vector<float> bias = {};
};

// The result of RouteRows.
struct Routes {
  std::vector<int32_t> experts;
  std::vector<float> weights;
  std::vector<int32_t> sorted;
  std::vector<ExpertPart> parts;
  std::vector<int64_t> totals;
};

constexpr int kWidth = 40;

Router Make(ExpertRouter rules, uint64_t seed, bool biased = false) {
  rules.width = kWidth;
  return {rules, Normal(int64_t{rules.experts} * kWidth, seed),
          biased ? Normal(rules.experts, seed + 1) : std::vector<float>{}};
}

std::vector<Router> Routers() {
  return {
      Make({.experts = 1, .choices = 1}, 1),
      Make({.experts = 5, .choices = 5, .normalize = true}, 2),
      Make({.experts = 64, .choices = 6, .scale = 1.5f}, 3),
      Make({.experts = 33, .choices = 3, .sigmoid = true}, 4),
      Make({.experts = 24, .choices = 4, .groups = 6, .chosen_groups = 2}, 5),
      Make({.experts = 96, .choices = 8, .groups = 48, .chosen_groups = 5, .normalize = true}, 6),
      Make({.experts = 24, .choices = 4, .sigmoid = true, .best_of_group = 2}, 7, true),
      Make({.experts = 24,
            .choices = 5,
            .sigmoid = true,
            .groups = 4,
            .chosen_groups = 2,
            .best_of_group = 2,
            .normalize = true,
            .scale = 2.5f},
           8, true),
      Make({.experts = 24,  // groups of one
            .choices = 3,
            .sigmoid = true,
            .groups = 24,
            .chosen_groups = 3,
            .best_of_group = 2},
           9, true),
  };
}

Routes Route(const Router& router, const std::vector<BFloat16>& x,
             const std::vector<int32_t>& positions) {
  const auto rows = static_cast<int>(positions.size());
  const ExpertRouter& rules = router.rules;
  const int64_t choices = int64_t{rows} * rules.choices;
  const Stream stream = MakeStream();
  const DeviceArray<float> matrix(router.matrix), bias(router.bias);
  const DeviceArray<BFloat16> device_x(x);
  const DeviceArray<int32_t> device_positions(positions), experts(choices), sorted(choices);
  const DeviceArray<float> logits(int64_t{rows} * rules.experts), weights(choices);
  const DeviceArray<ExpertPart> parts(rules.experts);
  const DeviceArray<int64_t> totals(std::vector<int64_t>(rules.experts, 100));
  Check(cudaDeviceSynchronize());  // copies from pageable memory can still be running
  ExpertRouter on_device = rules;
  on_device.matrix = matrix.get();
  on_device.bias = bias.get();
  RouteRows(on_device, device_x.get(), device_positions.get(), rows, logits.get(),
            {experts.get(), weights.get(), sorted.get(), parts.get()}, totals.get(), stream.get());
  Check(cudaStreamSynchronize(stream.get()));
  return {Read(experts), Read(weights), Read(sorted), Read(parts), Read(totals)};
}

// --- The choice

using Choice = std::map<int32_t, double>;  // weights by expert

// The choice of one row by its definition, in float64.
Choice Definition(const Router& router, const BFloat16* x) {
  const ExpertRouter& rules = router.rules;
  std::vector<double> scores;
  for (int i = 0; i < rules.experts; ++i) {
    scores.push_back(std::exp(Dot(x, &router.matrix[i * kWidth], kWidth)));
  }
  const double all = std::accumulate(scores.begin(), scores.end(), 0.0);
  for (double& score : scores) score = rules.sigmoid ? score / (1 + score) : score / all;
  std::vector<double> choices = scores;
  for (size_t i = 0; i < router.bias.size(); ++i) choices[i] += router.bias[i];
  // The indices of the largest values, the lower index first among equal ones.
  const auto largest = [](const std::vector<double>& values, int64_t most) {
    std::vector<int32_t> indices(values.size());
    std::iota(indices.begin(), indices.end(), 0);
    std::stable_sort(indices.begin(), indices.end(),
                     [&](int32_t a, int32_t b) { return values[a] > values[b]; });
    indices.resize(most);
    return indices;
  };
  const int size = rules.experts / rules.groups;
  std::vector<double> groups;
  for (int group = 0; group < rules.groups; ++group) {
    std::vector<double> of_group(choices.begin() + group * size,
                                 choices.begin() + (group + 1) * size);
    std::sort(of_group.rbegin(), of_group.rend());
    of_group.resize(std::min(size, rules.best_of_group));
    groups.push_back(std::accumulate(of_group.begin(), of_group.end(), 0.0));
  }
  const std::vector<int32_t> chosen_groups = largest(groups, rules.chosen_groups);
  for (int i = 0; i < rules.experts; ++i) {
    if (std::count(chosen_groups.begin(), chosen_groups.end(), i / size) == 0) {
      choices[i] = -std::numeric_limits<double>::infinity();
    }
  }
  Choice chosen;
  double sum = 0;
  for (const int32_t expert : largest(choices, rules.choices)) {
    chosen[expert] = scores[expert];
    sum += scores[expert];
  }
  for (auto& [expert, weight] : chosen) weight *= rules.scale / (rules.normalize ? sum : 1);
  return chosen;
}

class DeviceExpertsTest : public CudaTest {};

TEST_F(DeviceExpertsTest, AreChosenByTheDefinition) {
  constexpr int kRows = 30;
  const std::vector<BFloat16> x = Rounded(Normal(kRows * kWidth, 3));
  for (const Router& router : Routers()) {
    SCOPED_TRACE(testing::Message() << router.rules.choices << " of " << router.rules.experts);
    const int choices = router.rules.choices;
    const Routes routes = Route(router, x, std::vector<int32_t>(kRows, 0));
    for (int row = 0; row < kRows; ++row) {
      int slot = row * choices;
      for (const auto& [expert, weight] : Definition(router, &x[row * kWidth])) {
        ASSERT_EQ(routes.experts[slot], expert) << "row " << row;
        ASSERT_NEAR(routes.weights[slot++], weight, 1e-4 * weight) << "row " << row;
      }
    }
  }
}

TEST_F(DeviceExpertsTest, TheLowerIndexWinsATie) {
  const std::vector<BFloat16> x = Rounded(Normal(2 * kWidth, 3));
  for (Router router : Routers()) {
    SCOPED_TRACE(testing::Message() << router.rules.choices << " of " << router.rules.experts);
    std::fill(router.matrix.begin(), router.matrix.end(), 0.25f);
    std::fill(router.bias.begin(), router.bias.end(), -3.0f);
    const Routes routes = Route(router, x, {0, 0});
    for (int i = 0; i < 2 * router.rules.choices; ++i) {
      ASSERT_EQ(routes.experts[i], i % router.rules.choices);
    }
  }
  // Pairs of equal experts, from the best down: the third choice is the lower one of a pair.
  Router pairs = Make({.experts = 64, .choices = 3}, 1);
  for (int i = 0; i < 64; ++i) {
    std::fill_n(pairs.matrix.begin() + i * kWidth, kWidth, static_cast<float>((i % 32 + 7) % 32));
  }
  const std::vector<BFloat16> ones = Rounded(std::vector<float>(kWidth, 0.01f));
  EXPECT_THAT(Route(pairs, ones, {0}).experts, ElementsAre(23, 24, 56));
}

TEST_F(DeviceExpertsTest, AreValidWhateverTheLogitsAre) {
  for (const float bad : {kNaN, kInf, -kInf}) {
    for (const Router& router : Routers()) {
      std::vector<float> x(3 * kWidth, bad);
      for (int i = 0; i < kWidth; ++i) x[i] = static_cast<float>(i - 20);
      x[5] = bad;
      const int choices = router.rules.choices;
      const Routes routes = Route(router, Rounded(x), {0, 0, 0});
      for (int row = 0; row < 3; ++row) {
        const auto first = routes.experts.begin() + row * choices;
        const std::set<int32_t> chosen(first, first + choices);
        ASSERT_EQ(std::ssize(chosen), choices);
        ASSERT_GE(*chosen.begin(), 0);
        ASSERT_LT(*chosen.rbegin(), router.rules.experts);
      }
    }
  }
}

TEST_F(DeviceExpertsTest, ChoicesAreSortedAndCountedWithoutPaddingRows) {
  constexpr int kRows = 70;
  const std::vector<BFloat16> x = Rounded(Normal(kRows * kWidth, 3));
  std::vector<int32_t> positions(kRows);
  for (int i = 0; i < kRows; ++i) positions[i] = i % 9 == 4 ? -1 : 2 * i;
  for (const Router& router : Routers()) {
    SCOPED_TRACE(testing::Message() << router.rules.choices << " of " << router.rules.experts);
    const int choices = router.rules.choices;
    const Routes routes = Route(router, x, positions);
    std::vector<int32_t> expected;
    for (int32_t expert = 0; expert < router.rules.experts; ++expert) {
      const auto first = static_cast<int32_t>(expected.size());
      for (int32_t i = 0; i < kRows * choices; ++i) {
        const bool padding = positions[i / choices] < 0;
        ASSERT_EQ(routes.experts[i] < 0, padding);
        if (routes.experts[i] == expert) expected.push_back(i);
      }
      const auto count = static_cast<int32_t>(expected.size()) - first;
      ASSERT_EQ(routes.parts[expert].first, first);
      ASSERT_EQ(routes.parts[expert].count, count);
      ASSERT_EQ(routes.totals[expert], 100 + count);
    }
    std::vector<int32_t> sorted = routes.sorted;
    sorted.resize(expected.size());
    ASSERT_EQ(sorted, expected);
  }
}

// --- Products

struct Product {
  const char* name;
  int64_t inputs;
  int64_t outputs;
};

class ExpertProductTest : public CudaTest, public testing::WithParamInterface<Product> {
 protected:
  static constexpr int kExperts = 6, kChoices = 2;

  ExpertProductTest()
      : shape_(Dense(GetParam().inputs, GetParam().outputs, MatmulOutput::kFloat32)),
        w_(Rounded(Normal(kExperts * shape_.inputs * shape_.outputs, 2))) {}

  void SetUp() override {
    CudaTest::SetUp();
    if (!IsSkipped()) PrepareExperts();
  }

  // Rows of y, zero where there is no product. Row i of x is that of choice i, or of its row if the
  // choices share it.
  std::vector<float> Multiply(const std::vector<int32_t>& experts, const std::vector<BFloat16>& x,
                              bool share) const {
    const auto choices = static_cast<int>(experts.size());
    std::vector<int32_t> sorted;
    std::vector<ExpertPart> parts;
    for (int expert = 0; expert < kExperts; ++expert) {
      const auto first = static_cast<int32_t>(sorted.size());
      for (int i = 0; i < choices; ++i) {
        if (experts[i] == expert) sorted.push_back(i);
      }
      parts.push_back({first, static_cast<int32_t>(sorted.size()) - first});
    }
    const Stream stream = MakeStream();
    const DeviceArray<int32_t> device_experts(experts), device_sorted(sorted);
    const DeviceArray<ExpertPart> device_parts(parts);
    const DeviceArray<BFloat16> device_w(w_), device_x(x);
    const DeviceArray<float> y(std::vector<float>(choices * shape_.outputs));
    Check(cudaDeviceSynchronize());
    MultiplyByExperts(shape_, {.experts = kExperts, .choices = kChoices}, device_w.get(),
                      device_x.get(), share ? kChoices : 1,
                      {device_experts.get(), nullptr, device_sorted.get(), device_parts.get()},
                      choices / kChoices, y.get(), stream.get());
    Check(cudaStreamSynchronize(stream.get()));
    return Read(y);
  }

  // The experts of rows: random, none for each fifth row, and the last expert never.
  static std::vector<int32_t> Choices(int rows) {
    std::mt19937_64 generator(static_cast<uint64_t>(rows));
    std::vector<int32_t> experts;
    for (int row = 0; row < rows; ++row) {
      const auto first = static_cast<int32_t>(generator() % (kExperts - 2));
      for (const int32_t expert : {first, first + 1}) {
        experts.push_back(row % 5 == 3 ? -1 : expert);
      }
    }
    return experts;
  }

  const MatmulShape shape_;
  const std::vector<BFloat16> w_;
};

// Few rows of an expert take small tiles, and many take large ones.
TEST_P(ExpertProductTest, RowsTakeTheirExpertsWeights) {
  for (const int rows : {1, 20, 130}) {
    const std::vector<int32_t> experts = Choices(rows);
    for (const bool share : {false, true}) {
      SCOPED_TRACE(testing::Message() << rows << " rows, shared " << share);
      const int64_t inputs = shape_.inputs, outputs = shape_.outputs;
      const std::vector<BFloat16> x = Rounded(Normal(rows * (share ? 1 : kChoices) * inputs, 5));
      const std::vector<float> y = Multiply(experts, x, share);
      for (int64_t i = 0; i < std::ssize(experts); ++i) {
        for (int64_t output = 0; output < outputs; ++output) {
          double expected = 0;
          if (experts[i] >= 0) {
            expected = Dot(&x[(share ? i / kChoices : i) * inputs],
                           &w_[(experts[i] * outputs + output) * inputs], inputs);
          }
          // Sums of products of two normal numbers, in float32.
          ASSERT_NEAR(y[i * outputs + output], expected, 1e-4) << "choice " << i << ", " << output;
        }
      }
    }
  }
}

TEST_P(ExpertProductTest, ARowIsTheSameBitsAmongOthers) {
  constexpr int kRows = 130;
  const std::vector<int32_t> experts = Choices(kRows);
  const int64_t inputs = shape_.inputs, outputs = shape_.outputs;
  const std::vector<BFloat16> x = Rounded(Normal(kRows * inputs, 5));
  const std::vector<float> together = Multiply(experts, x, true);
  for (const int row : {0, 1, 64, 100, 129}) {
    const std::vector<int32_t> of_row(experts.begin() + row * kChoices,
                                      experts.begin() + (row + 1) * kChoices);
    const std::vector<float> alone =
        Multiply(of_row, {x.begin() + row * inputs, x.begin() + (row + 1) * inputs}, true);
    EXPECT_EQ(std::memcmp(alone.data(), &together[row * kChoices * outputs],
                          alone.size() * sizeof(float)),
              0)
        << "row " << row;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, ExpertProductTest,
                         testing::Values(Product{"Tiles", 128, 256},
                                         Product{"LessThanAStage", 8, 10},
                                         Product{"Ends", 200, 134}, Product{"OddInputs", 11, 24},
                                         Product{"OddOutputs", 24, 7}),
                         [](const auto& test) { return std::string(test.param.name); });

// --- Choices beyond a grid's rows

TEST_F(DeviceExpertsTest, AGeneralProductHasMoreRowsThanAGrid) {
  constexpr int64_t kRows = kMostGridRows + 3;
  std::vector<float> numbers(kRows), doubled(kRows);
  for (int64_t i = 0; i < kRows; ++i) {
    numbers[i] = static_cast<float>(i % 100);
    doubled[i] = 2 * numbers[i];
  }
  const Stream stream = MakeStream();
  const DeviceArray<BFloat16> x(Rounded(numbers)), w(Rounded({2}));
  const DeviceArray<float> y(kRows);
  Check(cudaDeviceSynchronize());
  GeneralMatmul(Dense(1, 1, MatmulOutput::kFloat32), w.get(), x.get(), kRows, y.get(),
                stream.get());
  Check(cudaStreamSynchronize(stream.get()));
  EXPECT_EQ(Read(y), doubled);
}

TEST_F(DeviceExpertsTest, MoreRowsThanAGridHasAreActivated) {
  constexpr int kRows = kMostGridRows + 3, kPeriod = 16;
  // Widths of the kernel for any width and of that for multiples of 8.
  for (const int width : {1, 8}) {
    const std::vector<BFloat16> period = Rounded(Normal(int64_t{kPeriod} * 2 * width, 1));
    std::vector<BFloat16> x;
    for (int64_t i = 0; i < int64_t{kRows} * 2 * width; ++i) x.push_back(period[i % period.size()]);
    const Stream stream = MakeStream();
    const DeviceArray<BFloat16> device_x(x), y(int64_t{kRows} * width);
    Check(cudaDeviceSynchronize());
    Activate(HiddenAct::kSilu, /*gated=*/true, device_x.get(), nullptr, width, kRows, y.get(),
             stream.get());
    Check(cudaStreamSynchronize(stream.get()));
    const std::vector<BFloat16> activated = Read(y);
    for (int64_t i = 0; i < y.size(); ++i) {
      const int64_t row = i / width % kPeriod, column = i % width;
      const float gate = __bfloat162float(period[row * 2 * width + column]);
      const float up = __bfloat162float(period[row * 2 * width + width + column]);
      const float expected = gate / (1 + std::exp(-gate)) * up;
      ASSERT_NEAR(__bfloat162float(activated[i]), expected, 0.01f * std::abs(expected)) << i;
    }
  }
}

// --- The sum

TEST_F(DeviceExpertsTest, WeightedOutputsAndTheGatedSharedMlpAreAdded) {
  constexpr int kRows = 5, kChoices = 3, kElements = 300;
  const std::vector<int32_t> positions = {0, 4, -1, 7, 0};
  const std::vector<float> outputs = Normal(kRows * kChoices * kElements, 1);
  const std::vector<float> weights = Normal(kRows * kChoices, 2), gate = Normal(kElements, 3);
  const std::vector<float> shared = Normal(kRows * kElements, 4);
  const std::vector<float> before = Normal(kRows * kElements, 5);
  std::vector<float> small = Normal(kRows * kElements, 6);
  for (float& element : small) element *= 0.05f;
  const std::vector<BFloat16> x = Rounded(small);
  const DeviceArray<float> device_outputs(outputs), device_weights(weights), device_gate(gate);
  const DeviceArray<float> device_shared(shared);
  const DeviceArray<BFloat16> device_x(x);
  const DeviceArray<int32_t> device_positions(positions);
  for (const int kind : {0, 1, 2}) {  // no shared MLP, without and with a gate
    const Stream stream = MakeStream();
    const DeviceArray<float> y(before);
    Check(cudaDeviceSynchronize());
    AddExperts({.outputs = device_outputs.get(),
                .shared = kind > 0 ? device_shared.get() : nullptr,
                .gate = kind > 1 ? device_gate.get() : nullptr,
                .x = device_x.get()},
               {.width = kElements, .choices = kChoices},
               {nullptr, device_weights.get(), nullptr, nullptr}, device_positions.get(), kRows,
               y.get(), stream.get());
    Check(cudaStreamSynchronize(stream.get()));
    const std::vector<float> after = Read(y);
    for (int row = 0; row < kRows; ++row) {
      const double product = Dot(&x[row * kElements], gate.data(), kElements);
      const double factor = kind == 0 ? 0 : kind == 1 ? 1 : 1 / (1 + std::exp(-product));
      for (int i = 0; i < kElements; ++i) {
        const int at = row * kElements + i;
        double expected = before[at];
        if (positions[row] >= 0) {
          expected += factor * shared[at];
          for (int slot = row * kChoices; slot < (row + 1) * kChoices; ++slot) {
            expected += double{weights[slot]} * double{outputs[slot * kElements + i]};
          }
        }
        ASSERT_NEAR(after[at], expected, 1e-5) << "row " << row << ", " << kind;
      }
    }
  }
}

}  // namespace
}  // namespace triptych::cuda::experts_test
