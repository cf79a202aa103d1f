#include "engine/attention/algebra.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/attention/grouped_attention.h"
#include "engine/attention/latent_attention.h"
#include "tests/support/random_model.h"
#include "tests/support/tensors.h"

namespace triptych::algebra_test {
namespace {

// float64 compared with float64: rounding only.
constexpr double kExact = 1e-11;
// The same through the root of a singular covariance: directions without inputs get 1e-5 of the
// others' weight, which magnifies rounding errors in them.
constexpr double kExactSingular = 1e-7;
// Error that those directions, each 1e-10 of the largest, can add to an error of about 1.
constexpr double kUnseen = 1e-7;

// Random shapes, and shapes with full rank 4, D and 1.
std::vector<HeadShape> Shapes() {
  std::vector<HeadShape> shapes = RandomHeadShapes(14, 1);
  shapes.push_back({24, 4, 1, 2});
  shapes.push_back({24, 4, 4, 6});
  shapes.push_back({1, 1, 1, 1});
  return shapes;
}

struct KeyValue {
  KeyValue(const HeadShape& shape, uint64_t seed) {
    Normal normal(seed);
    k = normal.Weight(shape.groups * shape.d, shape.width);
    v = 3 * normal.Weight(shape.groups * shape.d, shape.width);
  }
  at::Tensor Stacked() const { return at::cat({k, v}); }

  at::Tensor k, v;
};

at::Tensor Product(const LatentFactors& factors) {
  return at::mm(at::cat({factors.up_k, factors.up_v}), factors.down);
}

// Inputs of a layer, whose strongest direction is 100 times the weakest: [samples, D].
at::Tensor Samples(int64_t samples, int64_t width, uint64_t seed) {
  Normal normal(seed);
  const at::Tensor strengths = at::pow(0.01, at::arange(width, at::kDouble) / width);
  const at::Tensor directions = std::get<0>(at::linalg_qr(normal.Tensor({width, width})));
  return at::mm(normal.Tensor({samples, width}) * strengths, directions);
}

at::Tensor Covariance(const at::Tensor& samples) {
  return at::mm(samples.t(), samples) / samples.size(0);
}

// The error that engine/definitions.md#whitening-by-what-a-layer-reads minimises: the squared error
// of keys divided by their squares, plus the same for values.
double BalancedError(const LatentFactors& factors, const KeyValue& kv, const at::Tensor& samples) {
  const auto share = [&](const at::Tensor& up, const at::Tensor& weight) {
    const at::Tensor exact = at::mm(samples, weight.t());
    const at::Tensor made = at::mm(at::mm(samples, factors.down.t()), up.t());
    return ((made - exact).square().sum() / exact.square().sum()).item<double>();
  };
  return share(factors.up_k, kv.k) + share(factors.up_v, kv.v);
}

bool Finite(const LatentFactors& factors) {
  return at::isfinite(Product(factors)).all().item<bool>();
}

// ---- Heads -----------------------------------------------------------------------------------

TEST(Heads, RepeatedHeadReadsItsResidue) {
  for (const HeadShape& s : Shapes()) {
    const at::Tensor rows = Normal(2).Tensor({s.groups * s.d, s.width});
    const at::Tensor repeated = RepeatHeads(rows, s.heads, s.d);
    ASSERT_EQ(repeated.sizes(), (std::vector<int64_t>{s.heads * s.d, s.width}));
    const at::Tensor bias = RepeatHeads(rows.select(1, 0), s.heads, s.d);
    ASSERT_EQ(bias.dim(), 1);
    for (int64_t h = 0; h < s.heads; ++h) {
      const at::Tensor group = rows.narrow(0, h % s.groups * s.d, s.d);
      EXPECT_TRUE(at::equal(repeated.narrow(0, h * s.d, s.d), group)) << h;
      EXPECT_TRUE(at::equal(bias.narrow(0, h * s.d, s.d), group.select(1, 0))) << h;
    }
  }
}

TEST(Heads, PooledHeadIsTheMeanOfItsResidue) {
  for (const HeadShape& s : Shapes()) {
    const at::Tensor rows = Normal(3).Tensor({s.heads * s.d, s.width});
    at::Tensor sums = at::zeros({s.groups * s.d, s.width}, at::kDouble);
    for (int64_t h = 0; h < s.heads; ++h) {
      sums.narrow(0, h % s.groups * s.d, s.d) += rows.narrow(0, h * s.d, s.d);
    }
    const at::Tensor mean = sums * s.groups / s.heads;
    EXPECT_LE(LargestDifference(PoolHeads(rows, s.groups, s.d), mean), 1e-14);
    EXPECT_LE(LargestDifference(PoolHeads(rows.select(1, 0), s.groups, s.d), mean.select(1, 0)),
              1e-14);
  }
}

TEST(Heads, PoolingUndoesRepeating) {
  for (const HeadShape& s : Shapes()) {
    const at::Tensor rows = Normal(4).Tensor({s.groups * s.d, s.width});
    const at::Tensor back = PoolHeads(RepeatHeads(rows, s.heads, s.d), s.groups, s.d);
    EXPECT_LE(LargestDifference(back, rows), 1e-14);
  }
}

// engine/definitions.md#a-stack-of-copies: the singular values of H/G stacked copies are sqrt(H/G)
// times one copy's, and the rank does not grow.
TEST(Heads, RepeatedHeadsKeepTheirRank) {
  Normal normal(3);
  const int64_t groups = 2, d = 3, heads = 8;
  const at::Tensor one = normal.Weight(groups * d, 24);
  const at::Tensor stacked = RepeatHeads(one, heads, d);
  const at::Tensor values = at::linalg_svdvals(stacked);
  const at::Tensor expected = at::linalg_svdvals(one) * std::sqrt(heads / groups);
  EXPECT_LT(LargestDifference(values.narrow(0, 0, groups * d), expected), 1e-13);
  EXPECT_EQ(at::linalg_matrix_rank(stacked).item<int64_t>(), groups * d);
}

// The counter-example of engine/definitions.md#why-mla-is-not-gqa: the rows of a low-rank product
// need not repeat.
TEST(Heads, ALatentProductNeedNotBeAStackOfCopies) {
  const at::Tensor down = at::tensor({1.0, 2.0}, at::kDouble).view({1, 2});
  const at::Tensor up = at::tensor({3.0, 4.0}, at::kDouble).view({2, 1});
  const at::Tensor product = at::mm(up, down);
  EXPECT_TRUE(at::equal(product, at::tensor({3.0, 6.0, 4.0, 8.0}, at::kDouble).view({2, 2})));
  // The nearest stack repeats the mean of the rows, [3.5 7].
  const at::Tensor nearest = RepeatHeads(PoolHeads(product, 1, 1), 2, 1);
  const double distance = (product - nearest).norm().item<double>();
  EXPECT_NEAR(distance, std::sqrt(2 * (0.5 * 0.5 + 1 * 1)), 1e-15);
  Normal normal(5);
  for (int i = 0; i < 20; ++i) {
    const at::Tensor other = RepeatHeads(normal.Tensor({1, 2}, 3) + nearest[0], 2, 1);
    EXPECT_GE((product - other).norm().item<double>(), distance);
  }
}

// engine/definitions.md#why-mla-is-not-gqa: with free W_Q and W_O, a latent no wider than a head is
// one key/value head for all.
TEST(Heads, NarrowLatentIsMultiQueryPaddedWithZeros) {
  const int64_t heads = 3, d = 4, d1 = 9, d2 = 8;
  for (const int64_t rank : {1, 3, 4}) {
    Normal normal(6);
    const LatentWeights w = {.q = {normal.Weight(heads * d, d1), normal.Tensor({heads * d}, 0.5)},
                             .kv_a = {normal.Weight(rank, d2), {}},
                             .latent_norm = {},
                             .kv_b = normal.Weight(heads * 2 * d, rank),
                             .o = {normal.Weight(d1, heads * d), normal.Tensor({d1}, 0.5)}};
    const auto pad_rows = [&](const at::Tensor& rows) {
      return at::cat({rows, at::zeros({d - rank, rows.size(1)}, at::kDouble)});
    };
    std::vector<at::Tensor> q, q_bias, o;
    for (int64_t h = 0; h < heads; ++h) {
      const at::Tensor up_k = w.kv_b.narrow(0, h * 2 * d, d);
      const at::Tensor up_v = w.kv_b.narrow(0, h * 2 * d + d, d);
      q.push_back(pad_rows(at::mm(up_k.t(), w.q.weight.narrow(0, h * d, d))));
      q_bias.push_back(pad_rows(at::mm(up_k.t(), w.q.bias.narrow(0, h * d, d).unsqueeze(1))));
      o.push_back(pad_rows(at::mm(w.o.weight.narrow(1, h * d, d), up_v).t()).t());
    }
    const Linear latent = {pad_rows(w.kv_a.weight), {}};
    const GroupedAttention mqa(heads, /*groups=*/1,
                               {.q = {at::cat(q), at::cat(q_bias).squeeze(1)},
                                .k = latent,
                                .v = latent,
                                .o = {at::cat(o, 1), w.o.bias}});
    const LatentAttention mla({.heads = heads, .d_qk = d, .d_v = d, .rank = rank}, w);
    const at::Tensor x = normal.Tensor({2, 5, d1}), y = normal.Tensor({2, 7, d2});
    EXPECT_LE(RelativeError(mqa.Dense(x, y, false), mla.Dense(x, y, false)), kExact) << rank;
  }
}

// ---- A common basis of heads -------------------------------------------------------------------

// Shapes with equal numbers of key and query heads, and the groups to merge them into.
std::vector<HeadShape> Groupings() {
  std::vector<HeadShape> shapes = Shapes();
  shapes.push_back({24, 8, 2, 6});
  shapes.push_back({3, 4, 2, 5});   // wider heads than the layer
  shapes.push_back({40, 6, 1, 2});  // MQA
  return shapes;
}

// The rows of the heads of group g, one head after another: [m * d, D].
at::Tensor GroupRows(const at::Tensor& rows, const HeadShape& s, int64_t group) {
  std::vector<at::Tensor> heads;
  for (int64_t h = group; h < s.heads; h += s.groups) heads.push_back(rows.narrow(0, h * s.d, s.d));
  return at::cat(heads);
}

double SquaredError(const at::Tensor& made, const at::Tensor& rows, const at::Tensor& samples) {
  const at::Tensor difference = made - rows;
  return (samples.defined() ? at::mm(samples, difference.t()) : difference)
      .square()
      .sum()
      .item<double>();
}

TEST(CommonBasisTest, HasTheShapesOfTheDefinition) {
  for (const HeadShape& s : Groupings()) {
    const CommonBasis basis(Normal(31).Weight(s.heads * s.d, s.width).to(at::kFloat), s.groups,
                            s.d);
    EXPECT_EQ(basis.heads().sizes(), (std::vector<int64_t>{s.groups * s.d, s.width}));
    EXPECT_EQ(basis.heads().scalar_type(), at::kDouble);
    EXPECT_EQ(basis.Expand(basis.heads()).sizes(), (std::vector<int64_t>{s.heads * s.d, s.width}));
    const at::Tensor queries = Normal(32).Tensor({2 * s.heads * s.d, 7});
    EXPECT_EQ(basis.Turn(queries).sizes(), queries.sizes());
    EXPECT_EQ(basis.Turn(queries.select(1, 0)).sizes(), queries.select(1, 0).sizes());
  }
}

// Eckart and Young 1936, in each group: the error of the best d rows is given by the dropped
// singular values.
TEST(CommonBasisTest, WeightsLoseTheDroppedSingularValues) {
  for (const HeadShape& s : Groupings()) {
    SCOPED_TRACE(testing::PrintToString(s));
    const at::Tensor rows = Normal(33).Weight(s.heads * s.d, s.width);
    const CommonBasis basis(rows, s.groups, s.d);
    double dropped = 0;
    for (int64_t g = 0; g < s.groups; ++g) {
      const at::Tensor squares = at::linalg_svdvals(GroupRows(rows, s, g)).square();
      dropped += squares.slice(0, s.d).sum().item<double>();
    }
    const double all = rows.square().sum().item<double>();
    EXPECT_NEAR(SquaredError(basis.Expand(basis.heads()), rows, {}), dropped, 1e-12 * all);
    EXPECT_NEAR(1 - basis.energy_kept(), dropped / all, 1e-12);
  }
}

// The same for a layer's inputs: the error of keys is given by the dropped singular values with
// C^(1/2).
TEST(CommonBasisTest, ActivationsLoseTheLeastOfTheKeysAndValuesThatAreRead) {
  for (const HeadShape& s : Groupings()) {
    const at::Tensor rows = Normal(34).Weight(s.heads * s.d, s.width);
    for (const int64_t samples : {4 * s.width, (s.width + 1) / 2}) {
      SCOPED_TRACE(testing::PrintToString(s) + ", " + std::to_string(samples) + " samples");
      const at::Tensor inputs = Samples(samples, s.width, 35);
      const CommonBasis basis(rows, s.groups, s.d, Covariance(inputs));
      double dropped = 0;
      for (int64_t g = 0; g < s.groups; ++g) {
        const at::Tensor made = at::mm(inputs, GroupRows(rows, s, g).t());  // the group's keys
        dropped += at::linalg_svdvals(made).square().slice(0, s.d).sum().item<double>();
      }
      const double all = at::mm(inputs, rows.t()).square().sum().item<double>();
      const double error = SquaredError(basis.Expand(basis.heads()), rows, inputs);
      EXPECT_NEAR(error / all, dropped / all, kUnseen);
      EXPECT_NEAR(1 - basis.energy_kept(), error / all, kUnseen);
      const CommonBasis plain(rows, s.groups, s.d);
      EXPECT_LE(error, SquaredError(plain.Expand(plain.heads()), rows, inputs) + kUnseen * all);
    }
  }
}

TEST(CommonBasisTest, IsNeverWorseThanTheMean) {
  for (const HeadShape& s : Groupings()) {
    SCOPED_TRACE(testing::PrintToString(s));
    const at::Tensor rows = Normal(36).Weight(s.heads * s.d, s.width);
    const at::Tensor pooled = RepeatHeads(PoolHeads(rows, s.groups, s.d), s.heads, s.d);
    const at::Tensor inputs = Samples(2 * s.width, s.width, 37);
    for (const at::Tensor& samples : {at::Tensor(), inputs}) {
      const CommonBasis basis(rows, s.groups, s.d,
                              samples.defined() ? Covariance(samples) : samples);
      const double error = SquaredError(basis.Expand(basis.heads()), rows, samples);
      const double mean_error = SquaredError(pooled, rows, samples);
      EXPECT_LE(error, mean_error + kUnseen);
      if (s.heads > s.groups && s.width > s.d) {
        EXPECT_LT(error, mean_error);
      }
    }
  }
}

// Turned queries give the same scores with the group's keys as queries with their heads' projected
// keys.
TEST(CommonBasisTest, TurnedQueriesGiveTheScoresOfExpandedKeys) {
  for (const HeadShape& s : Groupings()) {
    SCOPED_TRACE(testing::PrintToString(s));
    const CommonBasis basis(Normal(38).Weight(s.heads * s.d, s.width), s.groups, s.d);
    const int64_t query_heads = 2 * s.heads;  // two per key head
    const at::Tensor queries = Normal(39).Weight(query_heads * s.d, 11);
    const at::Tensor turned = basis.Turn(queries);
    const at::Tensor expanded = basis.Expand(basis.heads());
    for (int64_t h = 0; h < query_heads; ++h) {
      const auto rows = [&](const at::Tensor& of, int64_t head) {
        return of.narrow(0, head * s.d, s.d);
      };
      const at::Tensor scores =
          at::mm(rows(turned, h).t(), rows(basis.heads(), h % s.groups));  // [11, D]
      const at::Tensor expected = at::mm(rows(queries, h).t(), rows(expanded, h % s.heads));
      EXPECT_LE(LargestDifference(scores, expected), 1e-13) << h;
    }
    EXPECT_TRUE(at::equal(basis.Turn(queries.select(1, 3)), turned.select(1, 3)) ||
                LargestDifference(basis.Turn(queries.select(1, 3)), turned.select(1, 3)) < 1e-14);
  }
}

TEST(CommonBasisTest, CopiesLoseNothingAndOneHeadStaysItself) {
  for (const HeadShape& s : Groupings()) {
    SCOPED_TRACE(testing::PrintToString(s));
    const at::Tensor one = Normal(40).Weight(s.groups * s.d, s.width);
    const at::Tensor copies = RepeatHeads(one, s.heads, s.d);
    for (const at::Tensor& covariance :
         {at::Tensor(), Covariance(Samples(4 * s.width, s.width, 41))}) {
      const CommonBasis basis(copies, s.groups, s.d, covariance);
      EXPECT_LE(LargestDifference(basis.Expand(basis.heads()), copies), kExact);
      EXPECT_NEAR(basis.energy_kept(), 1, 1e-14);
      const CommonBasis same(one, s.groups, s.d, covariance);
      EXPECT_TRUE(at::equal(same.heads(), one));
      EXPECT_TRUE(at::equal(same.Turn(one), one));
    }
  }
}

TEST(CommonBasisTest, ZeroWeightsAndZeroInputsGiveNumbers) {
  const int64_t width = 10;
  const at::Tensor zeros = at::zeros({8, width}, at::kDouble), rows = Normal(42).Weight(8, width);
  for (const at::Tensor& covariance : {at::Tensor(), at::zeros({width, width}, at::kDouble)}) {
    for (const at::Tensor& given : {zeros, rows}) {
      const CommonBasis basis(given, 2, 2, covariance);
      EXPECT_TRUE(at::isfinite(basis.Expand(basis.heads())).all().item<bool>());
      EXPECT_TRUE(std::isfinite(basis.energy_kept()));
    }
  }
  EXPECT_EQ(CommonBasis(zeros, 2, 2).energy_kept(), 1);
}

// ---- The decomposition -----------------------------------------------------------------------

TEST(LikenessTest, IsTheDefinition) {
  constexpr int64_t kHeads = 3, kDim = 2, kWidth = 5;
  const at::Tensor rows = Normal(41).Weight(kHeads * kDim, kWidth);
  const at::Tensor inputs = Samples(20, kWidth, 42);
  for (const bool whitened : {false, true}) {
    const at::Tensor c = whitened ? Covariance(inputs) : at::eye(kWidth, at::kDouble);
    const at::Tensor products = at::mm(at::mm(rows, c), rows.t());  // A A^T
    const at::Tensor likeness = Likeness(rows.to(at::kFloat), kDim, whitened ? c : at::Tensor());
    ASSERT_EQ(likeness.sizes(), (std::vector<int64_t>{kHeads, kHeads}));
    const double square = products.trace().item<double>();  // |A|^2
    for (int64_t i = 0; i < kHeads; ++i) {
      for (int64_t j = 0; j < kHeads; ++j) {
        const double expected = products.narrow(0, i * kDim, kDim)
                                    .narrow(1, j * kDim, kDim)
                                    .square()
                                    .sum()
                                    .item<double>() /
                                (square * square);
        EXPECT_NEAR(likeness[i][j].item<double>(), expected, 1e-6) << i << " " << j;  // float32
      }
    }
  }
}

// No swap of two heads of different groups raises the likeness within groups, and heads generated
// as one group are found.
TEST(LikeHeadsTest, NoSwapIsBetter) {
  Normal normal(43);
  for (const auto& [heads, groups] :
       std::vector<std::pair<int64_t, int64_t>>{{4, 2}, {6, 2}, {6, 3}, {8, 4}, {9, 3}, {8, 1}}) {
    const at::Tensor half = normal.Tensor({heads, heads});
    const at::Tensor likeness = half + half.t();
    const auto shared = [&, g = groups](const std::vector<int64_t>& order) {
      double sum = 0;
      for (size_t i = 0; i < order.size(); ++i) {
        for (size_t j = i + 1; j < order.size(); ++j) {
          if (i % g == j % g) sum += likeness[order[i]][order[j]].item<double>();
        }
      }
      return sum;
    };
    std::vector<int64_t> order = LikeHeads(likeness, groups);
    std::vector<int64_t> sorted = order;
    std::sort(sorted.begin(), sorted.end());
    for (int64_t i = 0; i < heads; ++i) ASSERT_EQ(sorted[i], i);
    const double reached = shared(order);
    for (int64_t i = 0; i < heads; ++i) {
      for (int64_t j = i + 1; j < heads; ++j) {
        std::swap(order[i], order[j]);
        EXPECT_LE(shared(order), reached + 1e-9) << heads << " heads, " << groups << " groups";
        std::swap(order[i], order[j]);
      }
    }
  }
}

TEST(LikeHeadsTest, HeadsThatAreEquallyLikeStayInOrder) {
  EXPECT_EQ(LikeHeads(at::ones({6, 6}), 2), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
}

TEST(KeyValueSvdTest, FactorsHaveTheShapesOfTheDefinition) {
  for (const HeadShape& s : Shapes()) {
    const KeyValue kv(s, 7);
    const KeyValueSvd svd(kv.k.to(at::kFloat), kv.v.to(at::kFloat));
    ASSERT_EQ(svd.full_rank(), s.full_rank()) << testing::PrintToString(s);
    for (int64_t rank = 1; rank <= svd.full_rank(); ++rank) {
      const LatentFactors factors = svd.Factors(rank);
      EXPECT_EQ(factors.down.sizes(), (std::vector<int64_t>{rank, s.width}));
      EXPECT_EQ(factors.up_k.sizes(), (std::vector<int64_t>{s.groups * s.d, rank}));
      EXPECT_EQ(factors.up_v.sizes(), (std::vector<int64_t>{s.groups * s.d, rank}));
      EXPECT_EQ(factors.down.scalar_type(), at::kDouble);
    }
  }
}

// Keys and values of different widths, as in the general form.
TEST(KeyValueSvdTest, KeysAndValuesMayDifferInWidth) {
  Normal normal(8);
  const at::Tensor k = normal.Weight(6, 13), v = normal.Weight(10, 13);
  for (const at::Tensor& covariance : {at::Tensor(), Covariance(Samples(40, 13, 9))}) {
    const KeyValueSvd svd(k, v, covariance);
    EXPECT_EQ(svd.full_rank(), 13);
    const LatentFactors factors = svd.Factors(13);
    EXPECT_LE(RelativeError(at::mm(factors.up_k, factors.down), k), kExact);
    EXPECT_LE(RelativeError(at::mm(factors.up_v, factors.down), v), kExact);
  }
}

// Eckart and Young 1936: the error of the best product of this rank is given by the dropped
// singular values.
TEST(KeyValueSvdTest, WeightsLoseTheDroppedSingularValues) {
  for (const HeadShape& s : Shapes()) {
    const KeyValue kv(s, 10);
    const KeyValueSvd svd(kv.k, kv.v);
    const at::Tensor squares = at::linalg_svdvals(kv.Stacked()).square();
    const double total = squares.sum().item<double>();
    for (int64_t rank = 1; rank <= svd.full_rank(); ++rank) {
      const double error =
          (Product(svd.Factors(rank)) - kv.Stacked()).square().sum().item<double>();
      EXPECT_NEAR(error, squares.slice(0, rank).sum().item<double>(), 1e-12 * total)
          << testing::PrintToString(s) << ", rank " << rank;
    }
  }
}

TEST(KeyValueSvdTest, FullRankLosesNothing) {
  for (const HeadShape& s : Shapes()) {
    SCOPED_TRACE(testing::PrintToString(s));
    const KeyValue kv(s, 11);
    const KeyValueSvd plain(kv.k, kv.v);
    EXPECT_LE(RelativeError(Product(plain.Factors(s.full_rank())), kv.Stacked()), kExact);
    // Many samples; fewer directions than D, as after a norm layer; and only one.
    for (const int64_t samples : {4 * s.width, s.width - 1, int64_t{1}}) {
      if (samples == 0) continue;
      const KeyValueSvd svd(kv.k, kv.v, Covariance(Samples(samples, s.width, 12)));
      ASSERT_EQ(svd.full_rank(), s.full_rank());
      EXPECT_LE(RelativeError(Product(svd.Factors(s.full_rank())), kv.Stacked()), kExactSingular)
          << samples << " samples";
    }
  }
}

TEST(KeyValueSvdTest, LowerRanksAreTheFirstRowsAndColumnsOfHigherOnes) {
  for (const HeadShape& s : Shapes()) {
    const KeyValue kv(s, 13);
    for (const at::Tensor& covariance : {at::Tensor(), Covariance(Samples(50, s.width, 14))}) {
      const KeyValueSvd svd(kv.k, kv.v, covariance);
      const LatentFactors full = svd.Factors(svd.full_rank());
      for (int64_t rank = 1; rank < svd.full_rank(); ++rank) {
        const LatentFactors factors = svd.Factors(rank);
        // A product over other rows can sum in another order.
        EXPECT_LE(LargestDifference(factors.down, full.down.narrow(0, 0, rank)), kExact);
        EXPECT_TRUE(at::equal(factors.up_k, full.up_k.narrow(1, 0, rank)));
        EXPECT_TRUE(at::equal(factors.up_v, full.up_v.narrow(1, 0, rank)));
      }
    }
  }
}

TEST(KeyValueSvdTest, EnergyRisesToOneByEverSmallerSteps) {
  for (const HeadShape& s : Shapes()) {
    const KeyValue kv(s, 15);
    for (const at::Tensor& covariance : {at::Tensor(), Covariance(Samples(50, s.width, 16))}) {
      const at::Tensor energy = KeyValueSvd(kv.k, kv.v, covariance).energy();
      ASSERT_EQ(energy.size(0), s.full_rank());
      EXPECT_EQ(energy[-1].item<double>(), 1);
      double previous = 0, previous_step = 1;
      for (int64_t i = 0; i < energy.size(0); ++i) {
        const double step = energy[i].item<double>() - previous;
        EXPECT_GE(step, 0);
        EXPECT_LE(step, previous_step + 1e-15);  // the rounding of a difference of shares
        previous = energy[i].item<double>();
        previous_step = step;
      }
    }
    const at::Tensor squares = at::linalg_svdvals(kv.Stacked()).square();
    EXPECT_LE(
        LargestDifference(KeyValueSvd(kv.k, kv.v).energy(), squares.cumsum(0) / squares.sum()),
        kExact);
  }
}

// engine/definitions.md#whitening-by-what-a-layer-reads, with the symmetric root of C.
at::Tensor BalancedTruncation(const KeyValue& kv, const at::Tensor& covariance, int64_t rank) {
  const auto [values, q] = at::linalg_eigh(covariance);
  const at::Tensor root = at::mm(q * values.sqrt(), q.t());
  EXPECT_LE(RelativeError(at::mm(root, root), covariance), kExact);
  const at::Tensor s = at::mm(kv.k, root).norm(), t = at::mm(kv.v, root).norm();
  const at::Tensor a = at::cat({kv.k / s, kv.v / t});
  const auto svd = at::linalg_svd(at::mm(a, root), /*full_matrices=*/false);
  const at::Tensor u = std::get<0>(svd).narrow(1, 0, rank);
  const int64_t rows = kv.k.size(0);
  const at::Tensor up = at::cat({s * u.narrow(0, 0, rows), t * u.narrow(0, rows, kv.v.size(0))});
  return at::mm(up, at::mm(u.t(), a));
}

TEST(KeyValueSvdTest, ActivationsAreFactoredByTheDefinition) {
  for (const HeadShape& s : Shapes()) {
    const KeyValue kv(s, 17);
    const at::Tensor covariance = Covariance(Samples(4 * s.width, s.width, 18));
    const KeyValueSvd svd(kv.k, kv.v, covariance);
    for (const int64_t rank : {int64_t{1}, (svd.full_rank() + 1) / 2, svd.full_rank()}) {
      // The root's two forms round differently, and neighbouring singular values can be close.
      EXPECT_LE(RelativeError(Product(svd.Factors(rank)), BalancedTruncation(kv, covariance, rank)),
                kExactSingular)
          << testing::PrintToString(s) << ", rank " << rank;
    }
  }
}

TEST(KeyValueSvdTest, ActivationsLoseTheLeastOfKeysAndValues) {
  for (const HeadShape& s : Shapes()) {
    const KeyValue kv(s, 19);
    // Also for a singular covariance.
    for (const int64_t samples : {4 * s.width, (s.width + 1) / 2}) {
      const at::Tensor inputs = Samples(samples, s.width, 20);
      const KeyValueSvd svd(kv.k, kv.v, Covariance(inputs)), plain(kv.k, kv.v);
      Normal normal(21);
      for (int64_t rank = 1; rank < s.full_rank(); ++rank) {
        SCOPED_TRACE(testing::PrintToString(s) + ", rank " + std::to_string(rank));
        const LatentFactors factors = svd.Factors(rank);
        const double error = BalancedError(factors, kv, inputs);
        // Keys and values have an energy of 1 each; the weight of unseen directions is added.
        EXPECT_NEAR(error, 2 * (1 - svd.energy()[rank - 1].item<double>()), kUnseen);
        EXPECT_LE(error, BalancedError(plain.Factors(rank), kv, inputs) + kUnseen);
        for (int i = 0; i < 3; ++i) {
          const auto moved = [&](const at::Tensor& factor) {
            return factor + 0.1 * factor.abs().mean() * normal.Tensor(factor.sizes());
          };
          const LatentFactors other = {moved(factors.down), moved(factors.up_k),
                                       moved(factors.up_v)};
          EXPECT_LE(error, BalancedError(other, kv, inputs) + kUnseen);
        }
      }
    }
  }
}

// If inputs favour some directions, using them reduces the error much.
TEST(KeyValueSvdTest, ActivationsBeatWeightsByFarWhereInputsAreUneven) {
  const HeadShape s = {24, 4, 4, 6};
  const KeyValue kv(s, 22);
  const at::Tensor inputs = Samples(200, s.width, 23);
  const KeyValueSvd svd(kv.k, kv.v, Covariance(inputs)), plain(kv.k, kv.v);
  for (const int64_t rank : {4, 8, 16}) {
    EXPECT_LE(BalancedError(svd.Factors(rank), kv, inputs),
              0.5 * BalancedError(plain.Factors(rank), kv, inputs))
        << rank;
  }
}

// Keys a thousand times smaller than values have the same relative error.
TEST(KeyValueSvdTest, ActivationsDoNotDependOnTheSizeOfKeysAndInputs) {
  const HeadShape s = {24, 4, 2, 6};
  KeyValue kv(s, 24), small = kv;
  small.k = kv.k * 1e-3;
  const at::Tensor inputs = Samples(100, s.width, 25);
  const KeyValueSvd svd(kv.k, kv.v, Covariance(inputs));
  const KeyValueSvd other(small.k, small.v, Covariance(100 * inputs));
  EXPECT_LE(LargestDifference(other.energy(), svd.energy()), kExact);
  EXPECT_NEAR(BalancedError(other.Factors(5), small, inputs),
              BalancedError(svd.Factors(5), kv, inputs), kExact);
}

TEST(KeyValueSvdTest, ZeroWeightsAndZeroInputsGiveNumbers) {
  const HeadShape s = {10, 6, 3, 4};
  const at::Tensor none = at::zeros({s.width, s.width}, at::kDouble);
  for (const at::Tensor& covariance : {at::Tensor(), Covariance(Samples(5, s.width, 26)), none}) {
    for (const bool keys : {false, true}) {
      for (const bool values : {false, true}) {
        KeyValue kv(s, 27);
        if (!keys) kv.k.zero_();
        if (!values) kv.v.zero_();
        const KeyValueSvd svd(kv.k, kv.v, covariance);
        EXPECT_TRUE(at::isfinite(svd.energy()).all().item<bool>());
        EXPECT_EQ(svd.energy()[-1].item<double>(), 1);
        for (int64_t rank = 1; rank <= svd.full_rank(); ++rank) {
          EXPECT_TRUE(Finite(svd.Factors(rank)));
        }
        EXPECT_LE(LargestDifference(Product(svd.Factors(svd.full_rank())), kv.Stacked()),
                  kExactSingular);
      }
    }
  }
}

TEST(RelativeErrorTest, IsTheNormOfTheDifferenceOverTheReference) {
  const at::Tensor reference = at::tensor({3.0, 4.0}, at::kFloat);
  EXPECT_DOUBLE_EQ(RelativeError(at::tensor({3.0, 5.0}, at::kFloat), reference), 0.2);
  EXPECT_EQ(RelativeError(reference, reference), 0);
  EXPECT_DOUBLE_EQ(RelativeError(reference, at::zeros({2})), 5);
  EXPECT_TRUE(std::isnan(RelativeError(at::full({2}, std::nan("")), reference)));
}

}  // namespace
}  // namespace triptych::algebra_test
