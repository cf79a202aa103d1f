// Every instruction set of this machine in turn, forced upon the kernels.
#ifndef TRIPTYCH_TESTS_SUPPORT_INSTRUCTION_SETS_H_
#define TRIPTYCH_TESTS_SUPPORT_INSTRUCTION_SETS_H_

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstdint>
#include <string>
#include <vector>

namespace triptych {

// Highway's targets that this machine can run, one bit each, the best first. Under ThreadSanitizer
// only that one: threads share the same data whatever the instructions, and it takes an hour to run
// the emulated ones.
inline std::vector<int64_t> InstructionSets() {
  std::vector<int64_t> targets;
  for (int64_t left = hwy::SupportedTargets(); left != 0; left &= left - 1) {
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

// Kernels use one of InstructionSets() while it lives.
class UsedInstructionSet {
 public:
  explicit UsedInstructionSet(int64_t target) { Use(target); }
  ~UsedInstructionSet() { Use(0); }
  UsedInstructionSet(const UsedInstructionSet&) = delete;
  UsedInstructionSet& operator=(const UsedInstructionSet&) = delete;

 private:
  static void Use(int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

// Its parameter is one of InstructionSets(): kernels use that one while the test runs.
class InstructionSetTest : public testing::TestWithParam<int64_t> {
 private:
  const UsedInstructionSet set_{GetParam()};
};

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_SUPPORT_INSTRUCTION_SETS_H_
