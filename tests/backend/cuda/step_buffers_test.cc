#include "engine/backend/cuda/step_buffers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/backend/cuda/cuda_test.h"

namespace triptych::cuda::step_buffers_test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::Field;

constexpr int64_t kBlockPositions = 16;

class StepBuffersTest : public CudaTest {
 protected:
  // Sends a step's arrays to the device, as kernels read them.
  void Send(const StepInput& step) {
    shape_ = buffers_.Write(step, kBlockPositions);
    moved_ = buffers_.Send(stream_.get());
    Check(cudaStreamSynchronize(stream_.get()));
  }

  template <typename T>
  static std::vector<T> Read(const T* from, int64_t count) {
    std::vector<T> values(count);
    Check(cudaMemcpy(values.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }
  std::vector<int32_t> ReadRows(const int32_t* from) const { return Read(from, shape_.rows()); }
  std::vector<PrefillRun> ReadRuns() const { return Read(buffers_.runs(), shape_.runs); }
  static auto Run(int32_t start, int32_t count, int32_t row, int32_t table, int32_t expanded) {
    return AllOf(Field(&PrefillRun::start, start), Field(&PrefillRun::count, count),
                 Field(&PrefillRun::row, row), Field(&PrefillRun::table, table),
                 Field(&PrefillRun::expanded, expanded));
  }

  Stream stream_ = CudaDevices().empty() ? Stream() : MakeStream();
  StepBuffers buffers_;
  StepShape shape_;
  bool moved_ = false;
};

TEST(PaddedRowsTest, ArePowersOfTwoThenMultiplesOf64) {
  EXPECT_EQ(PaddedRows(0), 0);
  EXPECT_EQ(PaddedRows(1), 1);
  EXPECT_EQ(PaddedRows(3), 4);
  EXPECT_EQ(PaddedRows(33), 64);
  EXPECT_EQ(PaddedRows(64), 64);
  EXPECT_EQ(PaddedRows(65), 128);
  EXPECT_EQ(PaddedRows(129), 192);
}

// The first sequence is in its prompt, the second decodes, and the third recomputes its prompt and
// a part of its generated tokens.
TEST_F(StepBuffersTest, DecodeRowsComeBeforePrefillRows) {
  const std::vector<int32_t> first = {9}, second = {4, 7}, third = {30};
  StepInput step;
  step.ids = {10, 11, 12, 20, 30, 31, 32, 33};
  step.sequences = {{.blocks = first.data(), .start = 2, .count = 3, .prompt = 9},
                    {.blocks = second.data(), .start = 20, .count = 1, .prompt = 18},
                    {.blocks = third.data(), .start = 5, .count = 4, .prompt = 7}};
  step.logit_rows = {7, 2};
  step.likely_rows = {3};
  step.likely_scales = {0.25f};
  Send(step);

  EXPECT_EQ(shape_.decode_rows, 16);  // 3, padded so that prefill rows are aligned
  EXPECT_EQ(shape_.prefill_rows, 5);
  EXPECT_EQ(shape_.runs, 2);
  EXPECT_EQ(shape_.longest_run, 3);
  EXPECT_EQ(shape_.longest_context, 32);  // 21, the longest of a decode row
  EXPECT_EQ(shape_.logit_rows, 3);
  EXPECT_TRUE(shape_.finds_likely);

  std::vector<int32_t> ids(21, 0), positions(21, -1), tables(21, 0), slots(21, -1);
  const auto set = [&](int row, int32_t id, int32_t position, int32_t table, int32_t slot) {
    ids[row] = id;
    positions[row] = position;
    tables[row] = table;
    slots[row] = slot;
  };
  set(0, 20, 20, 1, 7 * 16 + 4);
  set(1, 32, 7, 3, 30 * 16 + 7);
  set(2, 33, 8, 3, 30 * 16 + 8);
  set(16, 10, 2, 0, 9 * 16 + 2);
  set(17, 11, 3, 0, 9 * 16 + 3);
  set(18, 12, 4, 0, 9 * 16 + 4);
  set(19, 30, 5, 3, 30 * 16 + 5);
  set(20, 31, 6, 3, 30 * 16 + 6);
  EXPECT_THAT(ReadRows(buffers_.ids()), ElementsAreArray(ids));
  EXPECT_THAT(ReadRows(buffers_.positions()), ElementsAreArray(positions));
  EXPECT_THAT(ReadRows(buffers_.tables()), ElementsAreArray(tables));
  EXPECT_THAT(ReadRows(buffers_.slots()), ElementsAreArray(slots));
  EXPECT_EQ(buffers_.locations().positions, buffers_.positions());
  EXPECT_EQ(buffers_.locations().slots, buffers_.slots());
  EXPECT_THAT(Read(buffers_.logit_rows(), 3), ElementsAre(0, 2, 18));  // likely rows first
  EXPECT_THAT(Read(buffers_.scales(), 3), ElementsAre(0.25f, 1, 1));
  EXPECT_THAT(Read(buffers_.blocks(), 4), ElementsAre(9, 4, 7, 30));
  EXPECT_THAT(ReadRuns(), ElementsAre(Run(2, 3, 16, 0, 0), Run(5, 2, 19, 3, 0)));
  EXPECT_THAT(buffers_.passes(), ElementsAre());
}

// Positions of three groups lie in other blocks. The second sequence has given back the windowed
// groups' first block.
TEST_F(StepBuffersTest, EachGroupHasTablesSlotsAndRunsOfItsOwn) {
  const std::vector<int32_t> first = {10, 20, 30}, second = {11, -1, -1, 12, 22, 32};
  StepInput step;
  step.ids = {1, 2, 3};
  step.sequences = {{.blocks = first.data(), .start = 4, .count = 2, .prompt = 9},
                    {.blocks = second.data(), .start = 18, .count = 1, .prompt = 18}};
  step.logit_rows = {0};
  buffers_ = StepBuffers({}, 3);
  Send(step);
  ASSERT_EQ(shape_.rows(), 18);
  EXPECT_EQ(shape_.runs, 1);
  EXPECT_THAT(Read(buffers_.blocks(), 9), ElementsAre(10, 20, 30, 11, 12, -1, 22, -1, 32));
  for (int group = 0; group < 3; ++group) {
    const std::vector<int32_t> tables = ReadRows(buffers_.tables(group));
    const std::vector<int32_t> slots = ReadRows(buffers_.slots(group));
    EXPECT_EQ(tables[0], 3 + 2 * group);
    EXPECT_EQ(slots[0], (12 + 10 * group) * 16 + 2);
    EXPECT_EQ(slots[1], -1);  // padding
    EXPECT_THAT(std::vector(tables.begin() + 16, tables.end()), ElementsAre(group, group));
    const int32_t slot = 10 * (1 + group) * 16 + 4;
    EXPECT_THAT(std::vector(slots.begin() + 16, slots.end()), ElementsAre(slot, slot + 1));
    EXPECT_THAT(Read(buffers_.runs(group), 1), ElementsAre(Run(4, 2, 16, group, 0)));
    EXPECT_EQ(buffers_.locations(group).slots, buffers_.slots(group));
  }
  EXPECT_THAT(Read(buffers_.logit_rows(), 1), ElementsAre(16));
}

// A prompt's rows are expanded from position 4 on, in passes of 128 positions and runs of 64 rows.
TEST_F(StepBuffersTest, ExpandedRowsComeLastAndHavePassesThatFit) {
  const std::vector<int32_t> blocks(19);
  StepInput step;
  step.ids.assign(109, 1);
  step.sequences = {{.blocks = blocks.data(), .start = 0, .count = 100, .prompt = 100},
                    {.blocks = blocks.data(), .start = 10, .count = 1, .prompt = 5},
                    {.blocks = blocks.data(), .start = 2, .count = 6, .prompt = 8},
                    {.blocks = blocks.data(), .start = 300, .count = 2, .prompt = 400}};
  buffers_ = StepBuffers({.from = 4, .positions = 128, .rows = 64});
  Send(step);
  EXPECT_EQ(shape_.decode_rows, 16);
  EXPECT_EQ(shape_.prefill_rows, 108);
  EXPECT_EQ(shape_.expanded_rows, 102);
  EXPECT_EQ(shape_.runs, 4);
  const std::vector<int32_t> positions = ReadRows(buffers_.positions());
  EXPECT_THAT(std::vector(positions.begin() + 16, positions.begin() + 24),
              ElementsAre(0, 1, 2, 3, 2, 3, 4, 5));
  EXPECT_THAT(std::vector(positions.end() - 7, positions.end()),
              ElementsAre(99, 4, 5, 6, 7, 300, 301));
  // The first run's second part needs a pass of its own, which the next sequence shares.
  EXPECT_THAT(ReadRuns(), ElementsAre(Run(4, 64, 22, 0, 0), Run(68, 32, 86, 0, 0),
                                      Run(4, 4, 118, 8, 100), Run(300, 2, 122, 9, 0)));
  const auto pass = [](int run, int runs, int first, int expanded, int longest, int context) {
    return ExpansionPass{run, runs, first, first + 128, expanded, longest, context};
  };
  EXPECT_THAT(buffers_.passes(),
              ElementsAre(pass(0, 1, 0, 68, 64, 68), pass(1, 2, 0, 108, 32, 100),
                          pass(3, 1, 0, 128, 2, 128), pass(3, 1, 128, 128, 2, 128),
                          pass(3, 1, 256, 46, 2, 46)));
}

TEST_F(StepBuffersTest, StepsWithoutPrefillArePaddedToFewShapes) {
  const std::vector<int32_t> blocks = {3, 1};
  StepInput step;
  for (int i = 0; i < 5; ++i) {
    step.ids.push_back(i);
    step.sequences.push_back({.blocks = blocks.data(), .start = 16 + i, .count = 1, .prompt = 8});
  }
  step.logit_rows = {4, 0, 1};
  Send(step);
  const StepShape five = shape_;
  EXPECT_EQ(five.decode_rows, 8);
  EXPECT_EQ(five.prefill_rows, 0);
  EXPECT_EQ(five.runs, 0);
  EXPECT_EQ(five.longest_context, 32);
  EXPECT_EQ(five.logit_rows, 4);
  EXPECT_FALSE(five.finds_likely);
  EXPECT_THAT(ReadRows(buffers_.positions()), ElementsAre(16, 17, 18, 19, 20, -1, -1, -1));
  EXPECT_THAT(ReadRows(buffers_.slots()), ElementsAre(16, 17, 18, 19, 20, -1, -1, -1));
  EXPECT_THAT(ReadRows(buffers_.tables()), ElementsAre(0, 2, 4, 6, 8, 0, 0, 0));
  EXPECT_THAT(Read(buffers_.logit_rows(), 4), ElementsAre(4, 0, 1, 0));

  step.ids.push_back(5);
  step.sequences.push_back({.blocks = blocks.data(), .start = 30, .count = 1, .prompt = 8});
  step.logit_rows.push_back(5);
  Send(step);
  EXPECT_EQ(shape_, five);
  step.likely_rows = {2};
  step.likely_scales = {1};
  Send(step);
  EXPECT_NE(shape_, five);
}

// The longest context counts only decode rows, however long the step's prompts are.
TEST_F(StepBuffersTest, LongestContextIsThatOfDecodeRows) {
  const std::vector<int32_t> blocks = {0, 1, 2, 3, 4, 5, 6};
  StepInput step;
  step.ids.assign(101, 1);
  step.sequences = {{.blocks = blocks.data(), .start = 0, .count = 100, .prompt = 100},
                    {.blocks = blocks.data(), .start = 4, .count = 1, .prompt = 3}};
  Send(step);
  EXPECT_EQ(shape_.longest_context, 8);
  EXPECT_EQ(shape_.longest_run, 100);
  step.ids.resize(100);
  step.sequences.resize(1);
  Send(step);
  EXPECT_EQ(shape_.decode_rows, 0);
  EXPECT_EQ(shape_.longest_context, 0);
}

TEST_F(StepBuffersTest, DeviceMemoryMovesOnlyWhenItGrows) {
  const std::vector<int32_t> blocks(1000);
  StepInput step;
  const auto send = [&](int64_t tokens) {
    step.ids.assign(tokens, 1);
    step.sequences = {{.blocks = blocks.data(), .start = 0, .count = tokens, .prompt = tokens}};
    Send(step);
    return moved_;
  };
  EXPECT_TRUE(send(10));
  const int32_t* const ids = buffers_.ids();
  EXPECT_FALSE(send(20));
  EXPECT_EQ(buffers_.ids(), ids);
  EXPECT_TRUE(send(10000));
  EXPECT_FALSE(send(10));
  EXPECT_THAT(ReadRows(buffers_.ids()), Each(1));
}

}  // namespace
}  // namespace triptych::cuda::step_buffers_test
