#include "engine/kernels/workspace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace triptych::kernels::workspace_test {
namespace {

TEST(Workspace, BuffersAreAlignedAndDoNotOverlap) {
  std::mt19937_64 generator(1);
  Workspace workspace;
  const Workspace::Scope scope(workspace);
  struct Buffer {
    float* floats;
    int64_t count;
  };
  std::vector<Buffer> buffers;
  for (int i = 0; i < 200; ++i) {
    const auto count = static_cast<int64_t>(generator() % (i % 10 == 0 ? 100000 : 100));
    float* const floats = workspace.Floats(count);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(floats) % 64, 0u);
    std::fill_n(floats, count, static_cast<float>(i));
    buffers.push_back({floats, count});
  }
  for (size_t i = 0; i < buffers.size(); ++i) {
    const auto [floats, count] = buffers[i];
    EXPECT_EQ(std::count(floats, floats + count, static_cast<float>(i)), count);
  }
}

// Buffers of any element type are aligned.
TEST(Workspace, TakesOfSeveralTypes) {
  struct Element {
    int64_t number;
    const float* floats;
  };
  Workspace workspace;
  const Workspace::Scope scope(workspace);
  auto* const halves = workspace.Take<uint16_t>(3);
  float* const floats = workspace.Floats(5);
  auto* const elements = workspace.Take<Element>(7000);  // more than the first block holds
  for (const void* taken :
       {static_cast<void*>(halves), static_cast<void*>(floats), static_cast<void*>(elements)}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(taken) % 64, 0u);
  }
  std::fill_n(elements, 7000, Element{7, floats});
  std::fill_n(floats, 5, 1.5f);
  std::fill_n(halves, 3, uint16_t{9});
  EXPECT_EQ(std::count(halves, halves + 3, 9), 3);
  EXPECT_EQ(std::count(floats, floats + 5, 1.5f), 5);
  EXPECT_EQ(elements[6999].number, 7);
  EXPECT_EQ(elements[6999].floats, floats);
}

// Access outside of a taken buffer, or after its release, is an error.
TEST(WorkspaceDeathTest, AddressSanitizerSeesTheEndsOfBuffers) {
#if !defined(TRIPTYCH_WORKSPACE_POISONS)
  GTEST_SKIP() << "not built with AddressSanitizer";
#else
  Workspace workspace;
  const Workspace::Scope outer(workspace);
  volatile float* const first = workspace.Floats(16);
  volatile float* given_back;
  {
    const Workspace::Scope inner(workspace);
    given_back = workspace.Floats(16);
    given_back[15] = 1;
  }
  EXPECT_DEATH(given_back[0] = 1, "use-after-poison");
  workspace.Floats(16);
  first[15] = 1;
  given_back[15] = 1;
  EXPECT_DEATH(first[16] = 1, "use-after-poison");
#endif
}

TEST(Workspace, AScopeGivesBackWhatWasTakenInIt) {
  Workspace workspace;
  const Workspace::Scope outer(workspace);
  const float* const kept = workspace.Floats(10);
  const float* first = nullptr;
  for (int i = 0; i < 3; ++i) {
    const Workspace::Scope inner(workspace);
    const float* const taken = workspace.Floats(100000);
    EXPECT_NE(taken, kept);
    if (first == nullptr) first = taken;
    EXPECT_EQ(taken, first);
  }
}

}  // namespace
}  // namespace triptych::kernels::workspace_test
