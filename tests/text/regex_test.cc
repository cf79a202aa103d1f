#include "engine/text/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "engine/base/error.h"
#include "engine/text/tokenizer.h"
#include "tests/support/refusal.h"

namespace triptych::regex_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Clock = std::chrono::steady_clock;

std::vector<TextRange> FindAll(const Regex& regex, std::string_view text) {
  return regex.FindAll(text, Clock::time_point::max());
}

std::vector<std::string> Matches(std::string_view pattern, std::string_view text) {
  std::vector<std::string> found;
  for (const TextRange& match : FindAll(Regex(pattern, Regex::Syntax::kPattern, "field"), text)) {
    found.emplace_back(text.substr(match.begin, match.end - match.begin));
  }
  return found;
}

TEST(RegexTest, FindsFromLeftToRight) {
  EXPECT_THAT(Matches("\\p{N}{1,3}", "12345 é ٣"), ElementsAre("123", "45", "٣"));
  EXPECT_THAT(Matches("a", std::string(100, '-') + "a" + std::string(100, '-') + "a"),
              ElementsAre("a", "a"));
  EXPECT_THAT(Matches("é", "中中中中中中中中中é中"), ElementsAre("é"));
  EXPECT_THAT(Matches("x*", "axx"), ElementsAre("", "xx"));
}

// Unicode's list of White_Space has U+0085 and U+3000, and not U+180E, U+200B and U+FEFF.
TEST(RegexTest, WhiteSpaceIsUnicodes) {
  EXPECT_THAT(Matches("\\s", "a\u0085\u3000\u180e\u200b\ufeff\n"),
              ElementsAre("\u0085", "\u3000", "\n"));
  EXPECT_THAT(Matches("[^\\s]+", "a\u0085b"), ElementsAre("a", "b"));
}

// U+3001 and U+30FC are common to scripts: texts of Han, and of Hiragana and Katakana, use them.
TEST(RegexTest, AScriptHasItsOwnCharactersAlone) {
  EXPECT_THAT(Matches("\\p{Han}+", "中文、々〇ー"), ElementsAre("中文", "々〇"));
  EXPECT_THAT(Matches("[^\\p{Han}a]+", "中、ー文ab"), ElementsAre("、ー", "b"));
  EXPECT_THAT(Matches("\\P{Hiragana}+", "ひーら"), ElementsAre("ー"));
}

TEST(RegexTest, ALiteralIsNoPattern) {
  EXPECT_EQ(FindAll(Regex("a.", Regex::Syntax::kLiteral, "field"), "aba.").size(), 1u);
}

TEST(RegexTest, RefusesWhatItDoesNotUnderstandByName) {
  const auto refusal = [](std::string_view pattern) -> std::string {
    return RefusalOf<LoadError>([&] { Regex(pattern, Regex::Syntax::kPattern, "file: field"); });
  };
  EXPECT_THAT(refusal("(a"),
              HasSubstr("file: field is \"(a\"; not a supported regular expression"));
  EXPECT_EQ(refusal("\\h"), "file: field is \"\\\\h\"; \\h is not supported");
  for (const char* pattern : {"(*LIMIT_MATCH=1)a", "(?C1)a", "\\C", "a\\Kb", "(?<=a\\K)b"}) {
    EXPECT_THAT(refusal(pattern), HasSubstr("not supported")) << pattern;
  }
  EXPECT_THAT(refusal(std::string(70'000, 'a')), HasSubstr("allowed: at most 65536 bytes"));
}

TEST(RegexTest, APatternThatTakesTooLongIsReported) {
  for (const char* pattern : {"(a+)+$", "(a|aa)+$", "(?:a|a)*[bc]"}) {
    const Regex regex(pattern, Regex::Syntax::kPattern, "field");
    try {
      FindAll(regex, std::string(60, 'a') + "!");
      ADD_FAILURE() << pattern << " was matched";
    } catch (const EncodeError& e) {
      EXPECT_THAT(e.what(), HasSubstr("the pattern of the tokenizer's field takes too long"));
    }
  }
}

// A text's deadline can pass before its last piece is searched.
TEST(RegexTest, NothingIsSoughtAfterItsDeadline) {
  const Regex regex("a", Regex::Syntax::kPattern, "field");
  EXPECT_EQ(regex.FindAll("a", Clock::time_point::max()).size(), 1u);
  EXPECT_THROW(regex.FindAll("a", Clock::now() - std::chrono::seconds(1)), EncodeError);
}

TEST(RegexTest, PublishedPatternsCutAMegabyteOfAnything) {
  const Regex regex(
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
      " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
      Regex::Syntax::kPattern, "field");
  constexpr size_t kMegabyte = 1'000'000;
  EXPECT_EQ(FindAll(regex, std::string(kMegabyte, ' ')).size(), 1u);
  EXPECT_EQ(FindAll(regex, std::string(kMegabyte, 'a')).size(), 1u);
  EXPECT_EQ(FindAll(regex, std::string(kMegabyte, '\n')).size(), 1u);
  EXPECT_EQ(FindAll(regex, std::string(kMegabyte, '!')).size(), 1u);
  EXPECT_EQ(FindAll(regex, std::string(kMegabyte - 1, '7')).size(), kMegabyte / 3);
  EXPECT_EQ(FindAll(regex, std::string(kMegabyte, ' ') + "a").size(), 2u);
}

}  // namespace
}  // namespace triptych::regex_test
