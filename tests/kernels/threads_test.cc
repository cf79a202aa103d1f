#include "engine/kernels/threads.h"

#include <gtest/gtest.h>

#include <thread>

namespace triptych {
namespace {

TEST(ComputePool, IsOfTheThreadThatAsks) {
  std::thread([] {
    SetComputeThreads(3);
    EXPECT_EQ(ComputePool().threads(), 3);
    ThreadPool* const mine = &ComputePool();
    EXPECT_EQ(&ComputePool(), mine);
    std::thread([&] {
      SetComputeThreads(1);
      EXPECT_NE(&ComputePool(), mine);
      EXPECT_EQ(ComputePool().threads(), 1);
    }).join();
    EXPECT_EQ(ComputePool().threads(), 3);
    SetComputeThreads(2);
    EXPECT_EQ(ComputePool().threads(), 2);
  }).join();
  std::thread([] { EXPECT_GE(ComputePool().threads(), 1); }).join();
}

}  // namespace
}  // namespace triptych
