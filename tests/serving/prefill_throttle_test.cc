#include "engine/serving/prefill_throttle.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>

namespace triptych::serving::prefill_throttle_test {
namespace {

using Duration = PrefillThrottle::Duration;
constexpr Duration kDecode = std::chrono::milliseconds(10);
constexpr Duration kRow = std::chrono::microseconds(100);
constexpr Duration kNobody{0};

// Steps of a machine on which decode takes kDecode and each row of a prompt kRow.
struct Machine {
  // Duration of the next step while prompts wait for prefill.
  Duration Step(int64_t decode_rows, Duration others = kNobody) {
    rows = std::min<int64_t>(pace.PromptRows(decode_rows, others), 512);
    const Duration took = (decode_rows > 0 ? kDecode : kNobody) + static_cast<double>(rows) * kRow;
    pace.Record(decode_rows, rows, took);
    return took;
  }
  PrefillThrottle pace;
  int64_t rows = 0;
};

TEST(PrefillThrottleTest, PromptsWithoutDecodingAreNotHeldBack) {
  Machine machine;
  EXPECT_EQ(machine.pace.PromptRows(0, kNobody), PrefillThrottle::kUnlimited);
  machine.Step(0);
  EXPECT_EQ(machine.pace.PromptRows(0, kNobody), PrefillThrottle::kUnlimited);
}

TEST(PrefillThrottleTest, StepsReachTheSlowdownAndDoNotExceedIt) {
  Machine machine;
  for (int i = 0; i < 5; ++i) machine.pace.Record(4, 0, kDecode);
  double total = 0;
  for (int i = 0; i < 200; ++i) {
    const Duration took = machine.Step(4);
    EXPECT_LE(took, PrefillThrottle::kDefaultMaxSlowdown * kDecode * 1.001);
    if (i >= 20) total += took / kDecode;
  }
  // One in 33 steps is decode-only.
  EXPECT_GT(total / 180, 0.97 * PrefillThrottle::kDefaultMaxSlowdown);
}

TEST(PrefillThrottleTest, ShortStepsAreNotHeldBack) {
  PrefillThrottle pace;
  constexpr Duration kShort = kDecode / 100;
  for (int i = 0; i < 5; ++i) pace.Record(4, 0, kShort);
  Duration took = kNobody;
  for (int i = 0; i < 20; ++i) {
    const int64_t rows = pace.PromptRows(4, kShort);
    took = kShort + static_cast<double>(rows) * kRow;
    pace.Record(4, rows, took);
  }
  EXPECT_LE(took, PrefillThrottle::kUnfelt);
  EXPECT_GT(took, 0.9 * PrefillThrottle::kUnfelt);
}

TEST(PrefillThrottleTest, MeasuresDecodingAgainFromTimeToTime) {
  Machine machine;
  machine.pace.Record(4, 0, kDecode);
  int64_t without = 0;
  for (int i = 0; i < 330; ++i) {
    machine.Step(4);
    without += machine.rows == 0;
  }
  EXPECT_EQ(without, 10);
}

// Each row takes longer than a step's limit: prompts advance, and the mean slowdown stays limited.
TEST(PrefillThrottleTest, ThePaceIsKeptOnAverageWhereARowIsTooLong) {
  for (const int64_t least : {1, 64}) {
    PrefillThrottle pace;
    for (int i = 0; i < 5; ++i) pace.Record(4, 0, kDecode);
    Duration total = kNobody;
    int64_t computed = 0;
    constexpr int kSteps = 100000;
    for (int i = 0; i < kSteps; ++i) {
      const int64_t rows = pace.PromptRows(4, kNobody, least);
      if (rows > 0) {
        EXPECT_GE(rows, least);
      }
      const Duration took = kDecode + static_cast<double>(rows) * 3 * kDecode;
      pace.Record(4, rows, took);
      total += took;
      computed += rows;
    }
    EXPECT_LE(total, (PrefillThrottle::kDefaultMaxSlowdown + 0.01) * kSteps * kDecode);
    EXPECT_GT(computed, kSteps / 5);
  }
}

// One slow step, because the machine stalled, must not delay prompts for a hundred thousand steps.
TEST(PrefillThrottleTest, NothingIsOwedForAStepDuringWhichTheMachineDidSomethingElse) {
  Machine machine;
  for (int i = 0; i < 20; ++i) machine.Step(4);
  machine.pace.Record(4, 8, std::chrono::seconds(100));
  int steps = 0;
  while (machine.pace.PromptRows(4, kNobody) == 0 && steps < 1000) {
    machine.pace.Record(4, 0, kDecode);
    ++steps;
  }
  EXPECT_LE(steps, 10);
}

TEST(PrefillThrottleTest, WithoutDecodingThereIsNoDebt) {
  PrefillThrottle pace;
  pace.Record(4, 0, kDecode);
  pace.Record(4, 8, 100 * kDecode);
  EXPECT_EQ(pace.PromptRows(4, kNobody), 0);
  EXPECT_EQ(pace.PromptRows(0, kNobody), PrefillThrottle::kUnlimited);
  pace.Record(0, 100, kDecode);
  EXPECT_GT(pace.PromptRows(4, kNobody), 0);
}

TEST(PrefillThrottleTest, AnInfiniteSlowdownNeverHoldsPromptsBack) {
  PrefillThrottle pace(std::numeric_limits<double>::infinity());
  pace.Record(4, 0, kDecode);
  pace.Record(4, 8, std::chrono::seconds(10));
  EXPECT_EQ(pace.PromptRows(4, kDecode), PrefillThrottle::kUnlimited);
}

TEST(PrefillThrottleTest, OthersThatWaitBoundItToo) {
  Machine machine;
  for (int i = 0; i < 20; ++i) machine.Step(0, std::chrono::milliseconds(20));
  EXPECT_EQ(machine.rows, 200);
}

}  // namespace
}  // namespace triptych::serving::prefill_throttle_test
