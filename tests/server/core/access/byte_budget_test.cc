// Tests of the byte budget of all connections and of each client.
#include "server/core/access/byte_budget.h"

#include <gtest/gtest.h>

namespace triptych::server::byte_budget_test {
namespace {

TEST(ByteBudgetTest, OneClientMayHaveHalf) {
  ByteBudget budget(100);
  ByteBudget::Share first(budget, "ann"), second(budget, "ann"), other(budget, "bob");
  EXPECT_TRUE(first.Hold(30));
  EXPECT_FALSE(second.Hold(21));
  EXPECT_TRUE(second.Hold(20));
  EXPECT_FALSE(first.Hold(31));
  EXPECT_EQ(first.held(), 30);
  EXPECT_TRUE(other.Hold(50));
  EXPECT_TRUE(first.Hold(29));
  EXPECT_TRUE(second.Hold(21));
}

TEST(ByteBudgetTest, AllTogetherHaveTheWhole) {
  ByteBudget budget(100);
  ByteBudget::Share ann(budget, "ann"), bob(budget, "bob"), eve(budget, "eve");
  EXPECT_TRUE(ann.Hold(40));
  EXPECT_TRUE(bob.Hold(40));
  EXPECT_FALSE(eve.Hold(21));
  EXPECT_TRUE(eve.Hold(20));
  {
    ByteBudget::Share more(budget, "ann");
    EXPECT_FALSE(more.Hold(1));
    EXPECT_TRUE(eve.Hold(0));
    EXPECT_TRUE(more.Hold(10));
  }
  EXPECT_TRUE(eve.Hold(20));
}

}  // namespace
}  // namespace triptych::server::byte_budget_test
