#include "engine/attention/grouped_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "engine/attention/dense.h"
#include "tests/support/allocation_meter.h"
#include "tests/support/gradients.h"
#include "tests/support/oracle.h"
#include "tests/support/tensors.h"

namespace triptych::grouped_attention_test {
namespace {

// float64 compared with float64: rounding only (engine/definitions.md#tolerances, item 1).
constexpr double kExact = 1e-11;
// float32 compared with float64, scaled, in every row (engine/definitions.md#tolerances, item 2).
constexpr double kSingle = 1e-5;
// The error of a deliberate mistake must far exceed this to count as detected.
constexpr double kWrong = 1e-2;

struct Shape {
  std::string name;
  int64_t batch, l1, l2, d1, d2, heads, groups, d_qk, d_v;
  bool bias = false;
  bool causal = false;
  double rope_theta = 0;
};

// Prints a shape's name.
void PrintTo(const Shape& shape, std::ostream* os) { *os << shape.name; }

GroupedWeights RandomWeights(const Shape& s, uint64_t seed, bool scaled = true) {
  Normal normal(seed);
  const auto linear = [&](int64_t out, int64_t in) {
    return Linear{normal.Weight(out, in, scaled),
                  s.bias ? normal.Tensor({out}, 0.5) : at::Tensor()};
  };
  GroupedWeights weights;
  weights.q = linear(s.heads * s.d_qk, s.d1);
  weights.k = linear(s.groups * s.d_qk, s.d2);
  weights.v = linear(s.groups * s.d_v, s.d2);
  weights.o = linear(s.d1, s.heads * s.d_v);
  return weights;
}

Linear Cast(const Linear& linear, at::ScalarType dtype) {
  return {linear.weight.to(dtype), linear.bias.defined() ? linear.bias.to(dtype) : at::Tensor()};
}

GroupedAttention Make(const Shape& s, const GroupedWeights& w, at::ScalarType dtype = at::kDouble) {
  return GroupedAttention(
      s.heads, s.groups, {Cast(w.q, dtype), Cast(w.k, dtype), Cast(w.v, dtype), Cast(w.o, dtype)},
      GroupedOptions{.rotary = s.rope_theta > 0 ? Rotary(std::max(s.l1, s.l2), s.d_qk, s.rope_theta)
                                                : Rotary()});
}

oracle::Linear ToOracle(const Linear& linear) {
  return {ToMatrix(linear.weight), ToMatrix(linear.bias)};
}

oracle::GroupedAttention MakeOracle(const Shape& s, const GroupedWeights& w) {
  return {.heads = s.heads,
          .groups = s.groups,
          .q = ToOracle(w.q),
          .k = ToOracle(w.k),
          .v = ToOracle(w.v),
          .o = ToOracle(w.o),
          .rotation = {.theta = s.rope_theta},
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

class GroupedAttentionTest : public testing::TestWithParam<Shape> {};

TEST_P(GroupedAttentionTest, DenseEqualsTheDefinition) {
  const Shape& s = GetParam();
  for (const bool scaled : {true, false}) {
    const GroupedWeights weights = RandomWeights(s, 1, scaled);
    const Inputs in = RandomInputs(s, 2);
    const at::Tensor expected = ForBatch(MakeOracle(s, weights), in.x, in.y);
    const at::Tensor actual = Make(s, weights).Dense(in.x, in.y, s.causal);
    ASSERT_EQ(actual.sizes(), expected.sizes());
    EXPECT_LE(RelativeError(actual, expected), kExact) << "scaled: " << scaled;
  }
}

TEST_P(GroupedAttentionTest, DenseInFloat32) {
  const Shape& s = GetParam();
  const GroupedWeights weights = RandomWeights(s, 3);
  const Inputs in = RandomInputs(s, 4);
  const at::Tensor expected = ForBatch(MakeOracle(s, weights), in.x, in.y);
  const at::Tensor actual =
      Make(s, weights, at::kFloat).Dense(in.x.to(at::kFloat), in.y.to(at::kFloat), s.causal);
  EXPECT_EQ(actual.scalar_type(), at::kFloat);
  EXPECT_LE(WorstRowError(actual, expected), kSingle);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, GroupedAttentionTest,
    testing::Values(Shape{"MhaCross", 2, 5, 9, 14, 11, 3, 3, 4, 6},
                    Shape{"MhaCrossBias", 2, 7, 4, 10, 13, 4, 4, 5, 3, true},
                    Shape{"MhaCausal", 2, 9, 9, 12, 12, 4, 4, 3, 3, false, true},
                    Shape{"GqaCross", 3, 6, 8, 9, 15, 6, 3, 5, 7},
                    Shape{"GqaH12G4Bias", 1, 5, 11, 13, 8, 12, 4, 3, 2, true},
                    Shape{"GqaH12G3", 2, 4, 6, 7, 9, 12, 3, 2, 5},
                    Shape{"GqaH15G5Causal", 2, 10, 10, 16, 16, 15, 5, 4, 4, true, true},
                    Shape{"MqaCross", 2, 8, 5, 11, 6, 7, 1, 3, 5, true},
                    Shape{"MqaCausal", 2, 6, 6, 8, 8, 5, 1, 4, 2, false, true},
                    Shape{"OneQuery", 2, 1, 12, 6, 10, 4, 2, 3, 3, true},
                    Shape{"OneKey", 2, 12, 1, 6, 10, 4, 2, 3, 3},
                    Shape{"OneHead", 2, 3, 4, 5, 6, 1, 1, 2, 3},
                    Shape{"RotaryCross", 2, 6, 9, 7, 8, 6, 2, 8, 3, true, false, 10000},
                    Shape{"RotaryCausal", 2, 11, 11, 9, 9, 4, 4, 6, 6, false, true, 50},
                    // Longer than the blocks of queries that a causal mask is computed in.
                    Shape{"CausalLong", 1, 300, 300, 8, 8, 4, 2, 4, 3, false, true, 10000},
                    Shape{"CausalBlockEdge", 1, 129, 129, 6, 6, 3, 1, 2, 2, false, true}),
    testing::PrintToStringParamName());

// Queries of a sequence's last positions see the same keys as in the whole sequence.
TEST(AttendDense, CausalQueriesAreAtTheLastPositions) {
  const at::Tensor q = Normal(30).Tensor({2, 300, 6, 5});
  const at::Tensor k = Normal(31).Tensor({2, 300, 3, 5}), v = Normal(32).Tensor({2, 300, 3, 4});
  const at::Tensor whole = AttendDense(q, k, v, {.scale = 0.4}, /*causal=*/true);
  for (const int64_t count : {1, 2, 128, 129, 299}) {
    const int64_t first = 300 - count;
    const at::Tensor last =
        AttendDense(q.narrow(1, first, count), k, v, {.scale = 0.4}, /*causal=*/true);
    EXPECT_LE(RelativeError(last, whole.narrow(1, first, count)), kExact) << count;
  }
}

TEST(GroupedAttention, AsManyGroupsAsHeadsIsMultiHead) {
  // GQA whose key/value heads are repeated by h mod G is MHA, the same function
  // (engine/definitions.md#repeating-heads).
  const Shape gqa{"", 2, 6, 8, 9, 15, 6, 3, 5, 7, true};
  Shape mha = gqa;
  mha.groups = mha.heads;
  GroupedWeights weights = RandomWeights(gqa, 5);
  const Inputs in = RandomInputs(gqa, 6);
  const at::Tensor expected = Make(gqa, weights).Dense(in.x, in.y, false);
  for (Linear* linear : {&weights.k, &weights.v}) {
    linear->weight = linear->weight.repeat({2, 1});
    linear->bias = linear->bias.repeat({2});
  }
  EXPECT_LE(RelativeError(Make(mha, weights).Dense(in.x, in.y, false), expected), kExact);
}

// Controls: the comparisons above detect these mistakes.

TEST(GroupedAttentionControl, ContiguousGroupingIsDetected) {
  const std::vector<std::pair<int64_t, int64_t>> cases = {{12, 4}, {15, 5}, {6, 3}, {4, 2}};
  for (const auto& [heads, groups] : cases) {
    const Shape s{"", 2, 5, 7, 9, 8, heads, groups, 3, 4};
    const GroupedWeights weights = RandomWeights(s, 7);
    const Inputs in = RandomInputs(s, 8);
    oracle::GroupedAttention wrong = MakeOracle(s, weights);
    wrong.contiguous = true;
    const at::Tensor actual = Make(s, weights).Dense(in.x, in.y, false);
    EXPECT_GE(RelativeError(actual, ForBatch(wrong, in.x, in.y)), kWrong) << heads << ' ' << groups;
  }
}

TEST(GroupedAttentionControl, MaskOffByOneIsDetected) {
  const Shape s{"", 2, 9, 9, 8, 8, 4, 2, 3, 4, false, true};
  const GroupedWeights weights = RandomWeights(s, 9);
  const Inputs in = RandomInputs(s, 10);
  const at::Tensor actual = Make(s, weights).Dense(in.x, in.y, true);
  for (const int64_t shift : {-1, 1}) {
    oracle::GroupedAttention wrong = MakeOracle(s, weights);
    wrong.masking.causal_shift = shift;
    // Without its only key, the first row has no value; the others suffice.
    const at::Tensor expected = ForBatch(wrong, in.x, in.y).slice(1, 1);
    EXPECT_GE(RelativeError(actual.slice(1, 1), expected), kWrong) << shift;
  }
}

TEST(GroupedAttentionControl, WrongScaleIsDetected) {
  const Shape s{"", 2, 5, 7, 9, 8, 4, 2, 3, 4};
  const GroupedWeights weights = RandomWeights(s, 11);
  const Inputs in = RandomInputs(s, 12);
  oracle::GroupedAttention wrong = MakeOracle(s, weights);
  wrong.score_factor = std::sqrt(3.0);  // 1/sqrt(d_qk) left out
  EXPECT_GE(RelativeError(Make(s, weights).Dense(in.x, in.y, false), ForBatch(wrong, in.x, in.y)),
            kWrong);
}

// Counts all bytes of tensors. With many query heads on one key/value head and few queries, copies
// of K or V for the query heads would be by far the largest part.
TEST(GroupedAttention, MakesNoCopiesOfKeysOrValuesForQueryHeads) {
  const Shape s{"", 1, 1, 1000, 8, 8, 64, 1, 64, 64};
  const GroupedAttention attention = Make(s, RandomWeights(s, 13));
  const Inputs in = RandomInputs(s, 14);
  const int64_t keys_and_values = s.l2 * 2 * s.d_qk * 8;
  const int64_t scores = s.heads * s.l2 * 8;
  const AllocationMeter meter;
  attention.Dense(in.x, in.y, false);
  // K, V; scores and weights; the queries, outputs and their views are small.
  EXPECT_GE(meter.total(), keys_and_values);  // the meter works
  EXPECT_LE(meter.total(), keys_and_values + 2 * scores + 8 * s.heads * s.d_qk * 8);
}

// The same with batches and groups, where the batched product can need another layout of K and V:
// memory must not grow with the number of query heads per key/value head.
TEST(GroupedAttention, MemoryOfKeysAndValuesDoesNotGrowWithQueryHeads) {
  const auto measure = [](int64_t heads) {
    const Shape s{"", 2, 1, 1000, 8, 8, heads, 2, 64, 64};
    const GroupedAttention attention = Make(s, RandomWeights(s, 15));
    const Inputs in = RandomInputs(s, 16);
    const AllocationMeter meter;
    attention.Dense(in.x, in.y, false);
    return meter.total();
  };
  const int64_t scores_of_a_head = 2 * 1000 * 8;
  const int64_t queries_of_a_head = 2 * 64 * 8;
  const int64_t few = measure(2), many = measure(64);
  EXPECT_LE(many - few, 62 * (2 * scores_of_a_head + 8 * queries_of_a_head));
}

TEST(GroupedAttention, DenseIsDifferentiable) {
  for (const int64_t groups : {4, 2, 1}) {
    const Shape s{"", 2, 3, 3, 5, 5, 4, groups, 2, 3, true, true, 100};
    GroupedWeights weights = RandomWeights(s, 19);
    Inputs in = RandomInputs(s, 20);
    Normal normal(21);
    const at::Tensor direction = normal.Tensor(in.x.sizes());
    const auto loss = [&] { return (Make(s, weights).Dense(in.x, in.x, true) * direction).sum(); };
    ExpectGradients({in.x, weights.q.weight, weights.q.bias, weights.k.weight, weights.k.bias,
                     weights.v.weight, weights.v.bias, weights.o.weight, weights.o.bias},
                    loss);
  }
}

TEST(GroupedAttention, CrossAttentionIsDifferentiable) {
  const Shape s{"", 2, 3, 4, 5, 6, 4, 2, 2, 3};
  const GroupedWeights weights = RandomWeights(s, 22);
  const Inputs in = RandomInputs(s, 23);
  Normal normal(24);
  const at::Tensor direction = normal.Tensor(in.x.sizes());
  ExpectGradients(
      {in.x, in.y, weights.q.weight, weights.k.weight, weights.v.weight, weights.o.weight},
      [&] { return (Make(s, weights).Dense(in.x, in.y, false) * direction).sum(); });
}

}  // namespace
}  // namespace triptych::grouped_attention_test
