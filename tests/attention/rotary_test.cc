#include "engine/attention/rotary.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/kernels/rotation.h"
#include "tests/support/oracle.h"
#include "tests/support/tensors.h"

namespace triptych::rotary_test {
namespace {

// x: [length, heads, dim], rotated by the oracle.
at::Tensor Expected(const at::Tensor& x, const std::vector<int64_t>& positions, double theta) {
  at::Tensor out = x.to(at::kDouble).clone();
  const int64_t heads = x.size(1), dim = x.size(2);
  for (int64_t i = 0; i < x.size(0); ++i) {
    for (int64_t h = 0; h < heads; ++h) {
      oracle::Rotate({.theta = theta}, positions[i], out.data_ptr<double>() + (i * heads + h) * dim,
                     dim);
    }
  }
  return out;
}

TEST(RotaryTest, EqualsTheDefinitionAtAnyPositions) {
  const std::vector<int64_t> positions = {0, 1, 2, 7, 7, 499, 500, 3};
  for (const int64_t dim : {2, 4, 6, 34}) {
    for (const double theta : {10000.0, 3.0}) {
      const Rotary rotary(501, dim, theta);
      const at::Tensor x = Normal(1).Tensor({8, 3, dim});
      const at::Tensor expected = Expected(x, positions, theta);
      EXPECT_LE(LargestDifference(rotary.Apply(x, ToTensor(positions)), expected), 1e-11);
      // The angles are float64, so float32 only rounds the factors and products.
      const at::Tensor single = rotary.Apply(x.to(at::kFloat), ToTensor(positions));
      EXPECT_EQ(single.scalar_type(), at::kFloat);
      EXPECT_LE(LargestDifference(single, expected), 2e-6);
    }
  }
}

TEST(RotaryTest, LongTablesAreTheDefinitionToo) {
  const std::vector<int64_t> positions = {0, 4095, 4096, 8191, 8192, 9000};
  const Rotary rotary(9001, 6, 10000);
  const at::Tensor x = Normal(3).Tensor({6, 2, 6});
  EXPECT_LE(LargestDifference(rotary.Apply(x, ToTensor(positions)), Expected(x, positions, 10000)),
            1e-11);
}

TEST(RotaryTest, InPlaceIsTheSame) {
  const std::vector<int64_t> positions = {0, 7, 500, 3};
  for (const int64_t dim : {2, 6, 34}) {
    const Rotary rotary(501, dim, 10000);
    const at::Tensor x = Normal(7).Tensor({4, 3, dim}).to(at::kFloat);
    const at::Tensor expected = rotary.Apply(x, ToTensor(positions));
    const at::Tensor table = rotary.Table().contiguous();
    kernels::KernelContext context(1);
    kernels::RotateHeads(table.data_ptr<float>(), positions.data(), std::ssize(positions),
                         {.heads = 3, .dim = dim, .head_stride = dim, .row_stride = 3 * dim},
                         x.data_ptr<float>(), context);
    EXPECT_LE(LargestDifference(x, expected), 1e-6);
  }
}

TEST(RotaryTest, TreatsEverySequenceOfABatchTheSame) {
  const Rotary rotary(9, 4, 10000);
  const at::Tensor x = Normal(2).Tensor({3, 9, 2, 4});
  const at::Tensor positions = at::arange(9, at::kLong);
  const at::Tensor rotated = rotary.Apply(x, positions);
  for (int64_t b = 0; b < 3; ++b) {
    EXPECT_TRUE(at::equal(rotated[b], rotary.Apply(x[b], positions)));
  }
}

TEST(RotaryTest, PositionZeroChangesNothing) {
  const at::Tensor x = Normal(3).Tensor({1, 2, 6});
  EXPECT_TRUE(at::equal(Rotary(4, 6, 10000).Apply(x, ToTensor(std::vector<int64_t>{0})), x));
}

TEST(RotaryTest, ScoresDependOnTheDistanceOnly) {
  const Rotary rotary(200, 8, 10000);
  const at::Tensor q = Normal(4).Tensor({1, 1, 8}), k = Normal(5).Tensor({1, 1, 8});
  const auto score = [&](int64_t at_q, int64_t at_k) {
    return (rotary.Apply(q, ToTensor(std::vector<int64_t>{at_q})) *
            rotary.Apply(k, ToTensor(std::vector<int64_t>{at_k})))
        .sum()
        .item<double>();
  };
  for (const int64_t shift : {1, 50, 190}) EXPECT_NEAR(score(shift + 5, shift), score(5, 0), 1e-12);
  EXPECT_GT(std::abs(score(6, 0) - score(5, 0)), 1e-3);
}

TEST(RotaryTest, BFloat16IsRoundedOnce) {
  const std::vector<int64_t> positions = {1, 300};
  const at::Tensor x = Normal(6).Tensor({2, 3, 16}).to(at::kBFloat16);
  const at::Tensor rotated = Rotary(301, 16, 10000).Apply(x, ToTensor(positions));
  EXPECT_EQ(rotated.scalar_type(), at::kBFloat16);
  const at::Tensor expected = Expected(x, positions, 10000);
  // bfloat16 has 8 significant bits: half a unit in the last place is 2^-9 of the value.
  const at::Tensor slack = expected.abs() * 0x1p-8 + 1e-6;
  EXPECT_TRUE(((rotated.to(at::kDouble) - expected).abs() <= slack).all().item<bool>());
}

TEST(RotaryTest, DefaultConstructedIsUndefined) {
  EXPECT_FALSE(Rotary().defined());
  EXPECT_TRUE(Rotary(1, 2, 10000).defined());
}

}  // namespace
}  // namespace triptych::rotary_test
