// Matcher: stacks, ambiguity and its bounds.
#include "engine/grammar/matcher.h"

#include <gtest/gtest.h>

#include <string>

#include "engine/grammar/limits.h"
#include "tests/grammar/texts.h"

namespace triptych::grammar::matcher_test {
namespace {

TEST(Matcher, KeepsTheTextThatItRefusesToContinue) {
  Matcher matcher(Regex("ab*c"));
  EXPECT_TRUE(matcher.Advance("abb"));
  EXPECT_FALSE(matcher.Advance("bcc"));
  EXPECT_FALSE(matcher.MayEnd());
  EXPECT_TRUE(matcher.Advance("c"));
  EXPECT_TRUE(matcher.complete());
}

TEST(Matcher, TellsWhereMoreMayFollow) {
  Matcher matcher(Regex("ab?"));
  EXPECT_FALSE(matcher.MayEnd());
  EXPECT_TRUE(matcher.Advance("a"));
  EXPECT_TRUE(matcher.MayEnd());
  EXPECT_FALSE(matcher.complete());
}

TEST(Matcher, CountsLongRepetitionsInBoundedMemory) {
  Matcher matcher(Regex("(?:a|bc){100000}x*"));
  for (int i = 0; i < 50'000; ++i) ASSERT_TRUE(matcher.Advance("abc"));
  EXPECT_TRUE(matcher.MayEnd());
  EXPECT_FALSE(matcher.Advance("a"));
  EXPECT_LT(matcher.stacks().size(), 20'000);
  for (int i = 0; i < 50'000; ++i) ASSERT_TRUE(matcher.Advance("xxx"));
}

TEST(Matcher, NestsAsDeeplyAsItsBound) {
  Matcher matcher(Gbnf("root ::= \"(\" root \")\" | \"\"\n"));
  int depth = 0;
  while (matcher.Advance("(")) ++depth;
  EXPECT_EQ(depth, kMaxStackDepth);
  EXPECT_TRUE(matcher.Advance(std::string(depth, ')')));
  EXPECT_TRUE(matcher.complete());
}

TEST(Matcher, RefusesTextsWithTooManyReadings) {
  // Each byte doubles the stacks.
  Matcher matcher(Gbnf("root ::= \"a\" root \"x\" | \"a\" root \"y\" | \"b\"\n"));
  int length = 0;
  while (matcher.Advance("a")) ++length;
  EXPECT_LE(size_t{1} << length, 2 * kMaxPositions);
  EXPECT_TRUE(matcher.Advance("bxy"));
}

TEST(Matcher, AddsNoStackForARuleThatIsCalledLast) {
  Matcher matcher(Gbnf("root ::= \"a\" root | \"b\"\n"));
  EXPECT_TRUE(matcher.Advance(std::string(100'000, 'a')));
  EXPECT_TRUE(matcher.Advance("b"));
  EXPECT_EQ(matcher.stacks().size(), 1);
}

}  // namespace
}  // namespace triptych::grammar::matcher_test
