// Texts that regular expressions match as a whole.
#include "engine/grammar/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/grammar/texts.h"

namespace triptych::grammar::regex_test {
namespace {

using testing::HasSubstr;

TEST(GrammarRegex, MatchesWholeTexts) {
  struct Case {
    std::string regex;
    std::vector<std::string> matched, others;
  };
  const std::vector<Case> cases = {
      {"abc|d?", {"abc", "d", ""}, {"ab", "abcd"}},
      {"^(?:a|(?P<n>bb))+?$", {"a", "bba"}, {"", "b"}},
      {R"(\d{3}-[^\d\s]{1,2}\.)", {"123-ab.", "000-\xc3\xa9."}, {"12-a.", "123-a1.", "123-abc."}},
      {R"([]a\-x]+[[:upper:]]\x41\x{1F600})", {"]-BA\xf0\x9f\x98\x80"}, {"bBA\xf0\x9f\x98\x80"}},
      {".", {"a", "\xf0\x9f\x98\x80"}, {"\n", "", "ab", "\x80"}},
      {"a{2,}", {"aa", "aaaaaaaaaaaaaaaaaaaa"}, {"a"}},
      {"a{,2}", {"a{,2}"}, {"aa"}},
      {"(a|aa){3}", {"aaa", "aaaa", "aaaaaa"}, {"aa", "aaaaaaa"}},
      {"(a?){3}(b*){2,9}", {"", "aaa", "abbb"}, {"aaaa"}},
      {"(?:(?:x{0,9}){0,9}){0,9}y", {"y", "xxxxxxxxxxxxxxxxxxxxxxxy"}, {"x"}},
  };
  for (const auto& [regex, matched, others] : cases) {
    const auto grammar = Regex(regex);
    for (const std::string& text : matched) EXPECT_TRUE(Has(grammar, text)) << regex << " " << text;
    for (const std::string& text : others) EXPECT_FALSE(Has(grammar, text)) << regex << " " << text;
  }
}

TEST(GrammarRegex, RefusesWhatItCannotKeep) {
  for (const char* const regex : {"a(?=b)", R"(\bx)", R"((a)\1)", "(?i)a", R"(\pL)", "a(^b)", "x$y",
                                  "(a", "a)", "[a", "*a", "[b-a]", "a{3,2}", "a++", "\\"}) {
    EXPECT_THAT(Refusal(Regex, regex), HasSubstr("is not a supported regular expression")) << regex;
  }
}

}  // namespace
}  // namespace triptych::grammar::regex_test
