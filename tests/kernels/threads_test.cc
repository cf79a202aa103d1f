#include "engine/kernels/threads.h"

#include <gtest/gtest.h>

#include <thread>

namespace triptych {
namespace {

TEST(ComputeContext, IsOfTheThreadThatAsks) {
  std::thread([] {
    SetComputeThreads(3);
    EXPECT_EQ(ComputeContext().pool.threads(), 3);
    KernelContext* const mine = &ComputeContext();
    EXPECT_EQ(&ComputeContext(), mine);
    std::thread([&] {
      SetComputeThreads(1);
      EXPECT_NE(&ComputeContext(), mine);
      EXPECT_EQ(ComputeContext().pool.threads(), 1);
    }).join();
    EXPECT_EQ(ComputeContext().pool.threads(), 3);
    SetComputeThreads(2);
    EXPECT_EQ(ComputeContext().pool.threads(), 2);
  }).join();
  std::thread([] { EXPECT_GE(ComputeContext().pool.threads(), 1); }).join();
}

}  // namespace
}  // namespace triptych
