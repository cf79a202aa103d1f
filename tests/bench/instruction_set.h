// Figures for lesser machines than this one.
#ifndef TRIPTYCH_TESTS_BENCH_INSTRUCTION_SET_H_
#define TRIPTYCH_TESTS_BENCH_INSTRUCTION_SET_H_

#include <hwy/targets.h>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace triptych {

// The kernels and the limits use this instruction set of Highway's, or lesser ones where there is
// no code for it. Throws std::invalid_argument if this machine does not have it.
inline void UseInstructionSet(const std::string& name) {
  const int64_t supported = hwy::SupportedTargets();
  std::string allowed;
  for (int64_t left = supported; left != 0; left &= left - 1) {
    const int64_t set = left & -left;
    if (hwy::TargetName(set) == name) {
      hwy::SetSupportedTargetsForTest(supported & ~(set - 1));
      hwy::GetChosenTarget().Update(hwy::SupportedTargets());
      return;
    }
    allowed += std::string(allowed.empty() ? "" : ", ") + hwy::TargetName(set);
  }
  throw std::invalid_argument("--instruction-set: this machine has no " + name +
                              "; allowed: " + allowed);
}

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_BENCH_INSTRUCTION_SET_H_
