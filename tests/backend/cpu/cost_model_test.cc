#include "engine/backend/cpu/cost_model.h"

#include <gtest/gtest.h>

namespace triptych::cpu::cost_model_test {
namespace {

LatentShape Shape(int64_t heads, int64_t d, int64_t rank, int64_t d_rope = 0) {
  return {.heads = heads, .d_qk = d, .d_v = d, .rank = rank, .d_rope = d_rope};
}

// Multiply-adds of a new prompt of `length`, counted pair by pair.
double Cost(const std::vector<LatentShape>& layers, int64_t length, bool vanilla,
            double expansion) {
  double cost = 0;
  for (const LatentShape& s : layers) {
    const auto width =
        static_cast<double>(vanilla ? s.d_qk + s.d_rope + s.d_v : 2 * s.rank + s.d_rope);
    for (int64_t p = 1; p <= length; ++p) cost += static_cast<double>(s.heads * p) * width;
    if (vanilla) cost += static_cast<double>(s.heads * length) * width * expansion;
  }
  return cost;
}

TEST(CostModel, CrossoverIsWhereExpandingCostsNoMore) {
  for (const std::vector<LatentShape>& layers : {std::vector{Shape(8, 32, 64)},
                                                 {Shape(16, 128, 512, 64)},
                                                 {Shape(4, 7, 8, 3)},
                                                 {Shape(8, 32, 40), Shape(8, 32, 96)}}) {
    for (const double expansion : {1.0, 7.5, 40.0}) {
      const int64_t crossover = ExpansionCrossover(layers, expansion);
      ASSERT_GE(crossover, 1);
      EXPECT_LE(Cost(layers, crossover, true, expansion),
                Cost(layers, crossover, false, expansion));
      if (crossover > 1) {
        EXPECT_GT(Cost(layers, crossover - 1, true, expansion),
                  Cost(layers, crossover - 1, false, expansion));
      }
    }
  }
}

TEST(CostModel, NeverWhereTheReducedCoreIsNoLarger) {
  EXPECT_EQ(ExpansionCrossover({Shape(8, 32, 32)}, 1), kNeverExpand);
  EXPECT_EQ(ExpansionCrossover({}, 1), kNeverExpand);
  EXPECT_FALSE(ExpandingCanPay(Shape(8, 32, 32, 16)));
  EXPECT_TRUE(ExpandingCanPay(Shape(8, 32, 33)));
  // A layer that stays reduced does not count.
  EXPECT_EQ(ExpansionCrossover({Shape(8, 32, 64), Shape(8, 32, 16)}, 5),
            ExpansionCrossover({Shape(8, 32, 64)}, 5));
}

}  // namespace
}  // namespace triptych::cpu::cost_model_test
