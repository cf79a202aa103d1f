// Instruction sets of this machine, each forced in turn for tests of kernels.
#ifndef TRIPTYCH_TESTS_SUPPORT_INSTRUCTION_SETS_H_
#define TRIPTYCH_TESTS_SUPPORT_INSTRUCTION_SETS_H_

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/kernels/instruction_sets.h"

namespace triptych {

// Highway's targets that kernels are compiled for and this machine can run, one bit each, best
// first. Under ThreadSanitizer only the best: threads share the same data in all of them, and the
// emulated ones take an hour.
inline std::vector<int64_t> InstructionSets() {
  std::vector<int64_t> targets;
  for (int64_t left = HWY_SUPPORTED_TARGETS & HWY_TARGETS; left != 0; left &= left - 1) {
    targets.push_back(left & -left);
  }
#if defined(__SANITIZE_THREAD__)
  targets.resize(1);
#endif
  return targets;
}

inline std::string InstructionSetName(const testing::TestParamInfo<int64_t>& info) {
  return hwy::TargetName(info.param);
}

// Makes kernels use one of InstructionSets() during its lifetime.
class UsedInstructionSet {
 public:
  explicit UsedInstructionSet(int64_t target) { Use(target); }
  ~UsedInstructionSet() { Use(0); }
  UsedInstructionSet(const UsedInstructionSet&) = delete;
  UsedInstructionSet& operator=(const UsedInstructionSet&) = delete;

 private:
  static void Use([[maybe_unused]] int64_t targets) {
    // Kernels compiled for one set have no choice, and do not need Highway's library.
    if constexpr (!std::has_single_bit(static_cast<uint64_t>(HWY_TARGETS))) {
      hwy::SetSupportedTargetsForTest(targets);
      hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    }
  }
};

// Test parameterised by one of InstructionSets(), which kernels use while it runs.
class InstructionSetTest : public testing::TestWithParam<int64_t> {
 private:
  const UsedInstructionSet set_{GetParam()};
};

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_SUPPORT_INSTRUCTION_SETS_H_
