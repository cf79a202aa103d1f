// Choice of the instruction set that benchmarks use.
#ifndef TRIPTYCH_TESTS_BENCH_INSTRUCTION_SET_H_
#define TRIPTYCH_TESTS_BENCH_INSTRUCTION_SET_H_

#include <hwy/targets.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace triptych {

// Instruction sets of this machine, one bit each, best first; without emulated ones, on which no
// machine serves.
inline std::vector<int64_t> InstructionSets() {
  std::vector<int64_t> sets;
  for (int64_t left = hwy::SupportedTargets() & ~int64_t{HWY_EMU128 | HWY_SCALAR}; left != 0;
       left &= left - 1) {
    sets.push_back(left & -left);
  }
  return sets;
}

// Makes kernels and limits use `set`, or the next lower one that they have code for; 0: the best.
inline void UseInstructionSet(int64_t set) {
  hwy::SetSupportedTargetsForTest(0);
  if (set != 0) hwy::SetSupportedTargetsForTest(hwy::SupportedTargets() & ~(set - 1));
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

// UseInstructionSet by Highway's name. Throws std::invalid_argument if this machine lacks it.
inline void UseInstructionSet(const std::string& name) {
  std::string allowed;
  for (const int64_t set : InstructionSets()) {
    if (hwy::TargetName(set) == name) return UseInstructionSet(set);
    allowed += std::string(allowed.empty() ? "" : ", ") + hwy::TargetName(set);
  }
  throw std::invalid_argument("--instruction-set: this machine has no " + name +
                              "; allowed: " + allowed);
}

// Highway's name of the best instruction set in use.
inline std::string InstructionSetInUse() {
  const std::vector<int64_t> sets = InstructionSets();
  return sets.empty() ? "none" : hwy::TargetName(sets.front());
}

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_BENCH_INSTRUCTION_SET_H_
