#include "engine/attention/latent_attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "tests/support/allocation_meter.h"
#include "tests/support/gradients.h"
#include "tests/support/oracle.h"
#include "tests/support/tensors.h"

namespace triptych::latent_attention_test {
namespace {

// engine/definitions.md#tolerances, items 1, 2 and 3.
constexpr double kExact = 1e-11;
constexpr double kSingle = 1e-5;
constexpr double kSingleUnscaled = 1e-3;
// The error of a deliberate mistake must far exceed this to count as detected.
constexpr double kWrong = 1e-2;

struct Shape {
  std::string name;
  int64_t batch, l1, l2, d1, d2, heads, d_qk, d_v, rank;
  bool bias = false;
  bool causal = false;
  int64_t d_rope = 0;
  bool norm = false;
  int64_t normed_keys = 0;

  std::vector<ReducedForm> forms() const {
    if (normed_keys > 0) return {ReducedForm::kFactored};
    return {ReducedForm::kFactored, ReducedForm::kPremultiplied};
  }
};

// Prints a shape's name.
void PrintTo(const Shape& shape, std::ostream* os) { *os << shape.name; }

constexpr double kTheta = 100;
constexpr double kNormEps = 0.01;

LatentWeights RandomWeights(const Shape& s, uint64_t seed, bool scaled = true) {
  Normal normal(seed);
  LatentWeights w;
  const int64_t q_rows = s.heads * (s.d_qk + s.d_rope);
  w.q.weight = normal.Weight(q_rows, s.d1, scaled);
  w.kv_a.weight = normal.Weight(s.rank + s.d_rope, s.d2, scaled);
  w.kv_b = normal.Weight(s.heads * (s.d_qk + s.d_v), s.rank, scaled);
  w.o.weight = normal.Weight(s.d1, s.heads * s.d_v, scaled);
  if (s.bias) {
    w.q.bias = normal.Tensor({q_rows}, 0.5);
    w.o.bias = normal.Tensor({s.d1}, 0.5);
  }
  if (s.norm) w.latent_norm = normal.Tensor({s.rank}, 0.3) + 1;
  if (s.normed_keys > 0) {
    w.k.weight = normal.Weight(s.normed_keys * s.d_qk, s.d2, scaled);
    w.head_norm = normal.Tensor({s.heads * s.d_qk}, 0.3) + 1;
  }
  return w;
}

at::Tensor Cast(const at::Tensor& tensor, at::ScalarType dtype) {
  return tensor.defined() ? tensor.to(dtype) : tensor;
}

LatentAttention Make(const Shape& s, const LatentWeights& w, at::ScalarType dtype = at::kDouble) {
  const auto linear = [&](const Linear& l) {
    return Linear{Cast(l.weight, dtype), Cast(l.bias, dtype)};
  };
  return LatentAttention({.heads = s.heads,
                          .d_qk = s.d_qk,
                          .d_v = s.d_v,
                          .rank = s.rank,
                          .d_rope = s.d_rope,
                          .norm_eps = kNormEps,
                          .normed_keys = s.normed_keys},
                         {.q = linear(w.q),
                          .kv_a = linear(w.kv_a),
                          .latent_norm = Cast(w.latent_norm, dtype),
                          .kv_b = Cast(w.kv_b, dtype),
                          .o = linear(w.o),
                          .k = linear(w.k),
                          .head_norm = Cast(w.head_norm, dtype)},
                         s.d_rope > 0 ? Rotary(std::max(s.l1, s.l2), s.d_rope, kTheta) : Rotary());
}

oracle::LatentAttention MakeOracle(const Shape& s, const LatentWeights& w) {
  return {.heads = s.heads,
          .d_qk = s.d_qk,
          .d_v = s.d_v,
          .rank = s.rank,
          .d_rope = s.d_rope,
          .q = {ToMatrix(w.q.weight), ToMatrix(w.q.bias)},
          .kv_a = ToMatrix(w.kv_a.weight),
          .latent_norm = ToMatrix(w.latent_norm),
          .norm_eps = kNormEps,
          .kv_b = ToMatrix(w.kv_b),
          .o = {ToMatrix(w.o.weight), ToMatrix(w.o.bias)},
          .k = ToMatrix(w.k.weight),
          .q_norm = ToMatrix(w.head_norm),
          .rotation = {.theta = s.d_rope > 0 ? kTheta : 0},
          .masking = {.causal = s.causal}};
}

struct Inputs {
  at::Tensor x;  // [batch, L1, D1]
  at::Tensor y;  // [batch, L2, D2]; x itself if causal
};

Inputs RandomInputs(const Shape& s, uint64_t seed) {
  Normal normal(seed);
  const at::Tensor x = normal.Tensor({s.batch, s.l1, s.d1});
  return {x, s.causal ? x : normal.Tensor({s.batch, s.l2, s.d2})};
}

class LatentAttentionTest : public testing::TestWithParam<Shape> {};

TEST_P(LatentAttentionTest, VanillaAndReducedEqualTheDefinition) {
  const Shape& s = GetParam();
  for (const bool scaled : {true, false}) {
    const LatentWeights weights = RandomWeights(s, 1, scaled);
    const Inputs in = RandomInputs(s, 2);
    const at::Tensor expected = ForBatch(MakeOracle(s, weights), in.x, in.y);
    const LatentAttention attention = Make(s, weights);
    const at::Tensor vanilla = attention.Dense(in.x, in.y, s.causal);
    ASSERT_EQ(vanilla.sizes(), expected.sizes());
    EXPECT_LE(RelativeError(vanilla, expected), kExact) << "scaled: " << scaled;
    for (const ReducedForm form : s.forms()) {
      const at::Tensor reduced = attention.Reduced(form).Dense(in.x, in.y, s.causal);
      ASSERT_EQ(reduced.sizes(), vanilla.sizes());
      EXPECT_LE(RelativeError(reduced, vanilla), kExact) << "scaled: " << scaled;
    }
  }
}

TEST_P(LatentAttentionTest, Float32AgainstFloat64InEveryRow) {
  const Shape& s = GetParam();
  const LatentWeights weights = RandomWeights(s, 3);
  const Inputs in = RandomInputs(s, 4);
  const at::Tensor expected = ForBatch(MakeOracle(s, weights), in.x, in.y);
  const LatentAttention attention = Make(s, weights, at::kFloat);
  const at::Tensor x = in.x.to(at::kFloat), y = in.y.to(at::kFloat);
  EXPECT_LE(WorstRowError(attention.Dense(x, y, s.causal), expected), kSingle);
  for (const ReducedForm form : s.forms()) {
    const at::Tensor reduced = attention.Reduced(form).Dense(x, y, s.causal);
    EXPECT_EQ(reduced.scalar_type(), at::kFloat);
    EXPECT_LE(WorstRowError(reduced, expected), kSingle);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, LatentAttentionTest,
    testing::Values(
        Shape{"Cross", 2, 5, 9, 14, 11, 3, 4, 6, 7},
        Shape{"CrossBias", 2, 7, 4, 10, 13, 4, 5, 3, 6, true},
        Shape{"Causal", 2, 9, 9, 12, 12, 4, 3, 3, 5, false, true},
        Shape{"RankOne", 2, 5, 6, 8, 9, 3, 4, 4, 1, true},
        Shape{"RankAboveWidth", 2, 6, 6, 8, 8, 2, 4, 4, 19, true, true},
        Shape{"RankIsHeadWidth", 2, 6, 7, 8, 9, 2, 4, 4, 4},
        Shape{"Norm", 2, 5, 8, 9, 10, 3, 4, 5, 6, true, false, 0, true},
        Shape{"DecoupledCross", 2, 6, 9, 10, 7, 4, 3, 5, 6, false, false, 4},
        Shape{"DecoupledCausalBiasNorm", 2, 10, 10, 12, 12, 5, 4, 3, 7, true, true, 6, true},
        Shape{"NormedKeys", 2, 6, 9, 10, 7, 6, 3, 5, 4, false, false, 4, false, 2},
        Shape{"NormedKeysCausalBiasNorm", 2, 9, 9, 12, 12, 4, 3, 4, 7, true, true, 0, true, 4},
        Shape{"OneQuery", 2, 1, 12, 9, 8, 4, 3, 3, 5, true, false, 2},
        Shape{"OneKey", 2, 12, 1, 9, 8, 4, 3, 3, 5}, Shape{"OneHead", 2, 3, 4, 5, 6, 1, 2, 3, 4},
        Shape{"CausalLong", 1, 260, 260, 16, 16, 2, 8, 8, 5, false, true, 2}),
    testing::PrintToStringParamName());

// engine/definitions.md#the-experiment at its full widths. Its batch is 32; a smaller one is faster
// and covers the same kinds of rows.
Shape Experiment(int64_t batch) { return {"", batch, 100, 300, 1024, 1024, 32, 32, 32, 50}; }

TEST(LatentAttention, UnscaledExperimentInFloat32) {
  const Shape s = Experiment(8);
  const LatentWeights weights = RandomWeights(s, 5, /*scaled=*/false);
  const Inputs in = RandomInputs(s, 6);
  const at::Tensor x = in.x.to(at::kFloat), y = in.y.to(at::kFloat);
  const LatentAttention attention = Make(s, weights, at::kFloat);
  const at::Tensor vanilla = attention.Dense(x, y, false);
  for (const ReducedForm form : s.forms()) {
    EXPECT_LE(RelativeError(attention.Reduced(form).Dense(x, y, false), vanilla), kSingleUnscaled);
  }
}

TEST(LatentAttention, ScaledExperimentInFloat32AgainstFloat64) {
  const Shape s = Experiment(1);
  const LatentWeights weights = RandomWeights(s, 7);
  const Inputs in = RandomInputs(s, 8);
  const at::Tensor expected = ForBatch(MakeOracle(s, weights), in.x, in.y);
  const LatentAttention attention = Make(s, weights, at::kFloat);
  for (const ReducedForm form : s.forms()) {
    const at::Tensor reduced =
        attention.Reduced(form).Dense(in.x.to(at::kFloat), in.y.to(at::kFloat), false);
    EXPECT_LE(WorstRowError(reduced, expected), kSingle);
  }
}

TEST(LatentAttention, UnscaledExperimentInFloat64) {
  const Shape s = Experiment(1);
  const LatentWeights weights = RandomWeights(s, 9, /*scaled=*/false);
  const Inputs in = RandomInputs(s, 10);
  const LatentAttention attention = Make(s, weights);
  const at::Tensor vanilla = attention.Dense(in.x, in.y, false);
  for (const ReducedForm form : s.forms()) {
    EXPECT_LE(RelativeError(attention.Reduced(form).Dense(in.x, in.y, false), vanilla), kExact);
  }
}

// Reduced weights computed by hand from engine/definitions.md#reduction, one head at a time.
TEST(LatentAttention, ReducedPartsAreThoseOfTheDefinition) {
  const Shape s{"", 1, 3, 4, 9, 8, 3, 4, 5, 6, true};
  const LatentWeights w = RandomWeights(s, 11);
  const Inputs in = RandomInputs(s, 12);
  const at::Tensor positions = at::arange(3, at::kLong);
  std::vector<at::Tensor> queries, outputs;
  const at::Tensor latents = Normal(13).Tensor({3, s.heads * s.rank});
  at::Tensor output = at::zeros({3, s.d1}, at::kDouble);
  for (int64_t h = 0; h < s.heads; ++h) {
    const at::Tensor kv = w.kv_b.narrow(0, h * (s.d_qk + s.d_v), s.d_qk + s.d_v);
    const at::Tensor uk = kv.narrow(0, 0, s.d_qk), uv = kv.narrow(0, s.d_qk, s.d_v);
    const double factor = std::sqrt(static_cast<double>(s.rank) / static_cast<double>(s.d_qk));
    const at::Tensor q = at::matmul(in.x[0], w.q.weight.narrow(0, h * s.d_qk, s.d_qk).t()) +
                         w.q.bias.narrow(0, h * s.d_qk, s.d_qk);
    queries.push_back(factor * at::matmul(q, uk));
    const at::Tensor o = at::matmul(w.o.weight.narrow(1, h * s.d_v, s.d_v), uv);  // [D1, r]
    output += at::matmul(latents.narrow(1, h * s.rank, s.rank), o.t());
  }
  output += w.o.bias;
  const LatentAttention attention = Make(s, w);
  for (const ReducedForm form : s.forms()) {
    const ReducedLatentAttention reduced = attention.Reduced(form);
    EXPECT_DOUBLE_EQ(reduced.scores().scale, 1 / std::sqrt(6.0));
    EXPECT_LE(RelativeError(reduced.Queries(in.x[0], positions), at::stack(queries, 1)), kExact);
    EXPECT_LE(RelativeError(reduced.Rows(in.y[0], at::arange(4, at::kLong)),
                            at::matmul(in.y[0], w.kv_a.weight.t())),
              kExact);
    EXPECT_LE(RelativeError(reduced.Output(latents), output), kExact);
  }
}

// Controls: the comparisons above detect these mistakes.

TEST(LatentAttentionControl, ScaleLeftOutIsDetected) {
  // Without the factor the reduced scores are those of vanilla times sqrt(d_qk / r); with decoupled
  // keys, sqrt((d_qk + d_R) / (r + d_R)). A factor that forgets d_R is wrong as well.
  for (const int64_t d_rope : {0, 4}) {
    const Shape s{"", 2, 6, 9, 10, 7, 4, 3, 5, 8, false, false, d_rope};
    const LatentWeights weights = RandomWeights(s, 14);
    const Inputs in = RandomInputs(s, 15);
    const auto width = static_cast<double>(s.d_qk + d_rope);
    const auto reduced_width = static_cast<double>(s.rank + d_rope);
    std::vector<double> mistakes = {std::sqrt(width / reduced_width)};
    if (d_rope > 0) mistakes.push_back(mistakes[0] * std::sqrt(8.0 / 3.0));
    for (const double mistake : mistakes) {
      oracle::LatentAttention wrong = MakeOracle(s, weights);
      wrong.score_factor = mistake;
      const at::Tensor expected = ForBatch(wrong, in.x, in.y);
      for (const ReducedForm form : s.forms()) {
        const at::Tensor reduced = Make(s, weights).Reduced(form).Dense(in.x, in.y, false);
        EXPECT_GE(RelativeError(reduced, expected), kWrong);
      }
    }
  }
}

TEST(LatentAttentionControl, MaskOffByOneIsDetected) {
  const Shape s{"", 2, 9, 9, 8, 8, 4, 3, 4, 6, false, true};
  const LatentWeights weights = RandomWeights(s, 16);
  const Inputs in = RandomInputs(s, 17);
  const LatentAttention attention = Make(s, weights);
  for (const int64_t shift : {-1, 1}) {
    oracle::LatentAttention wrong = MakeOracle(s, weights);
    wrong.masking.causal_shift = shift;
    const at::Tensor expected = ForBatch(wrong, in.x, in.y).slice(1, 1);
    EXPECT_GE(RelativeError(attention.Dense(in.x, in.y, true).slice(1, 1), expected), kWrong);
    for (const ReducedForm form : s.forms()) {
      const at::Tensor reduced = attention.Reduced(form).Dense(in.x, in.y, true);
      EXPECT_GE(RelativeError(reduced.slice(1, 1), expected), kWrong);
    }
  }
}

// engine/definitions.md#normed-keys: the ways to get inverse norms wrong.
TEST(LatentAttentionControl, WrongInverseNormsAreDetected) {
  const Shape s{"", 2, 9, 9, 8, 8, 4, 3, 4, 6, false, true, 4, false, 2};
  const LatentWeights weights = RandomWeights(s, 29);
  const Inputs in = RandomInputs(s, 30);
  const auto expect_wrong = [&](const char* mistake, const Shape& shape,
                                const LatentWeights& made) {
    const at::Tensor expected = ForBatch(MakeOracle(s, weights), in.x, in.y);
    EXPECT_GE(RelativeError(Make(shape, made).Dense(in.x, in.y, true), expected), kWrong)
        << mistake;
    EXPECT_GE(
        RelativeError(Make(shape, made).Reduced(ReducedForm::kFactored).Dense(in.x, in.y, true),
                      expected),
        kWrong)
        << mistake;
  };
  Shape without = s;
  without.normed_keys = 0;
  expect_wrong("no norms", without, weights);
  LatentWeights wrong = weights;
  wrong.head_norm = weights.head_norm.square();
  expect_wrong("the weight twice", s, wrong);
  wrong = weights;
  wrong.k.weight = weights.k.weight.view({2, 3, 8}).flip(0).flatten(0, 1);
  expect_wrong("norms of the other head", s, wrong);
  Shape one = s;
  one.normed_keys = 1;
  wrong = weights;
  wrong.k.weight = weights.k.weight.narrow(0, 0, 3);
  expect_wrong("norms of one head for all", one, wrong);
}

TEST(LatentAttentionControl, RotaryBetweenQueriesAndKeysWouldBreakTheReduction) {
  // Two rotations do not commute with W_UK: dropping the decoupled part is not the same function.
  const Shape s{"", 2, 9, 9, 8, 8, 4, 3, 4, 6, false, true, 4};
  const LatentWeights weights = RandomWeights(s, 18);
  const Inputs in = RandomInputs(s, 19);
  oracle::LatentAttention wrong = MakeOracle(s, weights);
  wrong.rotation.theta = 0;
  EXPECT_GE(
      RelativeError(Make(s, weights).Reduced(ReducedForm::kPremultiplied).Dense(in.x, in.y, true),
                    ForBatch(wrong, in.x, in.y)),
      kWrong);
}

// The latent is key and value of every head: no tensor of the size of all heads' keys is allocated.
TEST(LatentAttention, ReducedMakesNoKeysOrValuesOfHeads) {
  const Shape s{"", 2, 1, 1000, 8, 8, 16, 64, 64, 8};
  const Inputs in = RandomInputs(s, 20);
  const LatentAttention attention = Make(s, RandomWeights(s, 21));
  const int64_t keys_of_heads = s.batch * s.l2 * s.heads * s.d_qk * 8;
  {
    const AllocationMeter meter;
    attention.Dense(in.x, in.y, false);
    EXPECT_GE(meter.largest(), 2 * keys_of_heads);  // vanilla expands keys and values
  }
  for (const ReducedForm form : s.forms()) {
    const ReducedLatentAttention reduced = attention.Reduced(form);
    const AllocationMeter meter;
    reduced.Dense(in.x, in.y, false);
    EXPECT_LE(meter.total(), keys_of_heads / 8);
  }
}

TEST(LatentAttention, DenseIsDifferentiable) {
  for (const bool decoupled : {false, true}) {
    const Shape s{
        "", 2, 3, 3, 5, 5, 2, 3, 2, 4, true, true, decoupled ? 2 : 0, decoupled, decoupled ? 1 : 0};
    const LatentWeights weights = RandomWeights(s, 26);
    const Inputs in = RandomInputs(s, 27);
    Normal normal(28);
    const at::Tensor direction = normal.Tensor(in.x.sizes());
    std::vector<at::Tensor> leaves = {
        in.x,           weights.q.weight,   weights.q.bias, weights.kv_b, weights.o.weight,
        weights.o.bias, weights.kv_a.weight};
    if (decoupled) {
      for (const at::Tensor& leaf : {weights.latent_norm, weights.k.weight, weights.head_norm}) {
        leaves.push_back(leaf);
      }
    }
    ExpectGradients(leaves,
                    [&] { return (Make(s, weights).Dense(in.x, in.x, true) * direction).sum(); });
  }
}

}  // namespace
}  // namespace triptych::latent_attention_test
