// Texts of grammars in GBNF.
#include "engine/grammar/gbnf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/grammar/texts.h"

namespace triptych::grammar::gbnf_test {
namespace {

using testing::HasSubstr;

TEST(Gbnf, ReadsRules) {
  const auto grammar = Gbnf(R"g(
# Sums of numbers in parentheses.
root  ::= term ("+" term)*   # a comment
term  ::= num |
          ("(" root
           ")")
num   ::= [1-9] [0-9]{0,2} | "\x30" | "\u00e9" | [^\x00-\x7f] "!"
)g");
  for (const char* const text : {"1", "0+12", "((1+2)+999)", "\xc3\xa9", "\xe2\x82\xac!"}) {
    EXPECT_TRUE(Has(grammar, text)) << text;
  }
  for (const char* const text : {"", "01", "1+", "(1", "1000", "\xe2\x82\xac", "a!"}) {
    EXPECT_FALSE(Has(grammar, text)) << text;
  }
}

TEST(Gbnf, RepeatsWithinBounds) {
  const auto grammar = Gbnf("root ::= (\"a\" | \"bb\"){2,} \"c\"{,3} .?\n");
  for (const char* const text : {"aa", "abbccc", "bbbb", "aaaaac", "aax"}) {
    EXPECT_TRUE(Has(grammar, text)) << text;
  }
  for (const char* const text : {"a", "bb", "abbccccc"}) EXPECT_FALSE(Has(grammar, text)) << text;
}

TEST(Gbnf, RefusesWithTheLine) {
  const auto refusal = [](const std::string& text) { return Refusal(Gbnf, text); };
  EXPECT_THAT(refusal("root ::= a\n"), HasSubstr("uses the rule \"a\", which it does not define"));
  EXPECT_THAT(refusal("a ::= \"b\"\n"), HasSubstr("has no rule root"));
  EXPECT_THAT(refusal("root ::= \"b\"\nroot ::= \"c\"\n"), HasSubstr("line 2: the rule \"root\""));
  EXPECT_THAT(refusal("root ::= \"b\n"), HasSubstr("line 1: a literal or class does not end"));
  EXPECT_THAT(refusal("root ::= root \"a\" | \"b\"\n"), HasSubstr("begins with itself"));
  EXPECT_THAT(refusal("root ::= a root \"b\" | \"c\"\na ::= \"x\"?\n"),
              HasSubstr("begins with itself"));
  EXPECT_THAT(refusal("root ::= \"a\" root\n"), HasSubstr("has no finite text"));
  EXPECT_THAT(refusal("root ::= \"a\"{2000000}\n"), HasSubstr("at most 1000000"));
  EXPECT_THAT(refusal("root ::= " + std::string(1000, '(') + "\n"), HasSubstr("nested too deeply"));
  EXPECT_THAT(refusal("root ::= [\xff]\n"), HasSubstr("not valid UTF-8"));
}

}  // namespace
}  // namespace triptych::grammar::gbnf_test
