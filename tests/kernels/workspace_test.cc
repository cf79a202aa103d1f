#include "engine/kernels/workspace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace triptych {
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
}  // namespace triptych
