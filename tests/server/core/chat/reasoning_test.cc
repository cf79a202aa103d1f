#include "server/core/chat/reasoning.h"

#include <gtest/gtest.h>

#include <string>

namespace triptych::server::reasoning_test {
namespace {

using Begin = ReasoningSplitter::Begin;

// "reasoning|content", the same for every step of the text.
std::string Split(Begin begin, const std::string& text) {
  std::string expected;
  for (size_t step = 1; step <= text.size() + 1; ++step) {
    ReasoningSplitter splitter(begin);
    ReasoningSplitter::Parts all;
    for (size_t i = 0; i <= text.size(); i += step) {
      const auto parts = splitter.Push(text.substr(i, step), i + step > text.size());
      all.reasoning += parts.reasoning;
      all.content += parts.content;
    }
    const std::string split = all.reasoning + "|" + all.content;
    if (step == 1) expected = split;
    EXPECT_EQ(split, expected) << "in steps of " << step;
  }
  return expected;
}

TEST(ReasoningTest, ThoughtsAreBetweenTags) {
  EXPECT_EQ(Split(Begin::kUnknown, "<think>\nhm, 1 < 2\n\nyes\n</think>\n\nIt is.\n"),
            "hm, 1 < 2\n\nyes|It is.\n");
  EXPECT_EQ(Split(Begin::kThoughts, "so </thin\n</think>It is."), "so </thin|It is.");
  EXPECT_EQ(Split(Begin::kUnknown, "\n<think>\n\n</think>\n\nIt is."), "|It is.");
}

TEST(ReasoningTest, AReplyMayHaveNone) {
  EXPECT_EQ(Split(Begin::kUnknown, "<thing> is <think>"), "|<thing> is <think>");
  EXPECT_EQ(Split(Begin::kUnknown, " \n"), "| \n");
  EXPECT_EQ(Split(Begin::kContent, "<think>a</think>b"), "|<think>a</think>b");
}

TEST(ReasoningTest, ThoughtsMayNotEnd) {
  EXPECT_EQ(Split(Begin::kUnknown, "<think>on and </th"), "on and </th|");
  EXPECT_EQ(Split(Begin::kThoughts, ""), "|");
}

}  // namespace
}  // namespace triptych::server::reasoning_test
