#include "engine/kernels/vector_bytes.h"

#include <gtest/gtest.h>

#include "tests/support/instruction_sets.h"

namespace triptych::kernels::vector_bytes_test {
namespace {

class VectorBytesTest : public InstructionSetTest {};

TEST_P(VectorBytesTest, AreThoseOfTheInstructionSet) {
  int64_t expected = GetParam() == HWY_SCALAR ? 1 : 16;
#if HWY_ARCH_X86
  if (GetParam() <= HWY_AVX2) expected = 32;
  if (GetParam() <= HWY_AVX3) expected = 64;
#endif
  EXPECT_EQ(VectorBytes(), expected);
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, VectorBytesTest, testing::ValuesIn(InstructionSets()),
                         InstructionSetName);

}  // namespace
}  // namespace triptych::kernels::vector_bytes_test
