// Texts that regular expressions match as a whole.
#include "engine/grammar/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#ifdef TRIPTYCH_RE2
#include <re2/re2.h>
#endif

#include <initializer_list>
#include <memory>
#include <random>
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
      {"(?i)k\\x{3c3}[^a]",
       {"K\xcf\x82"
        "b",
        "\xe2\x84\xaa\xce\xa3"
        "b"},
       {"K\xcf\x82"
        "A"}},
      {"a(?i:b)c(?-i)d|(?i)x(?-i:y)z|w", {"aBcd", "XyZ", "W"}, {"Abcd", "XYZ"}},
      {"(?s).(?-s).(?s:.)", {"\na\n"}, {"a\na"}},
      {R"([[:^alpha:][:blank:]]\a\101\012[[:ascii:]])", {"1\aA\n~"}, {"a\aA\n~"}},
      {R"(\Q(a*\E+.\Qx)", {"(a*bx", "(a***\xc3\xa9x"}, {"(abx"}},
      {R"(\pL\p{Nd}?\p{Greek}\P{L}[\p{^Lu}]\p{Any})",
       {"\xc3\xa9"
        "7\xce\xb1-ax",
        "A\xce\xb1-aA"},
       {"\xc3\xa9"
        "7a-ax",
        "A\xce\xb1-AA"}},
      {R"(\bab\b( ?\bc|\Bd|-\b\b\w)*\b)", {"ab", "ab c", "ab-x"}, {"abc", "abd", "ab-", "ab -x"}},
      {R"((^a|b\A|c)(d\z|$|e))", {"ad", "a", "ce", "c"}, {"b", "bd", "cc"}},
      {"(?m)(^a$|\n)*(?-m:$)", {"", "a", "a\na", "\n\n", "a\n"}, {"aa", "a\naa"}},
      {R"((\b\w{2,3}\b\W{1,2}){2,})", {"ab cd ", "abc, de. "}, {"a bc ", "abcd ab ", "ab cd"}},
      {R"((\B|\b)*x(?:){1000})", {"x"}, {"", "xx"}},
      {"a(?i)*b\\Q\\E{2}?x{01}", {"bbx{01}", "aabBX{01}"}, {"Abbx{01}", "bx{01}", "bbx"}},
      {"[[:][[:a-]", {"[[", ":a", "[-"}, {"]:", "::]", "[b"}},
      {R"([\p{Zl}-\x{2FFF}][+-[:a])",
       {"\xe2\x80\xa8+", "-:",
        "\xe2\xbf\xbf"
        "A"},
       {"\xe2\x80\xa9:", "-b"}},
      {R"([\p{Zl}-a])", {"a", "-", "\xe2\x80\xa8"}, {"b"}},
      {R"(\p{scx=Greek}\P{Greek}\p{ASCII}\p{Assigned}\P{Assigned})",
       {"\xcd\x82\xcd\x82~a\xcd\xb8"},
       {"\xcd\x82\xcd\x82~aa",
        "\xcd\x82\xcd\x82\xc3\xa9"
        "a\xcd\xb8"}},
  };
  for (const auto& [regex, matched, others] : cases) {
    const auto grammar = Regex(regex);
    for (const std::string& text : matched) EXPECT_TRUE(Has(grammar, text)) << regex << " " << text;
    for (const std::string& text : others) EXPECT_FALSE(Has(grammar, text)) << regex << " " << text;
  }
}

TEST(GrammarRegex, RefusesWhatItCannotKeep) {
  for (const char* const regex : {"(a",
                                  "a)",
                                  "[a",
                                  "*a",
                                  "(?i)*",
                                  "[b-a]",
                                  "a{3,2}",
                                  "a++",
                                  "\\",
                                  "(?i-",
                                  "(?i--s)",
                                  "(?x)a",
                                  "(?#a)",
                                  "(?>a)",
                                  R"(\pX)",
                                  R"(\p{L)",
                                  R"(\p{Script=X})",
                                  R"(\p{Age=1})",
                                  "[[:x:]]",
                                  "[a-",
                                  R"(\C)",
                                  R"(\Z)",
                                  R"(\G)",
                                  R"(\q)",
                                  R"(\u0041)",
                                  R"([\b])",
                                  R"(\x{110000})",
                                  "{2}",
                                  "(|{2})",
                                  "a**",
                                  "a{2}{3}",
                                  "a*??",
                                  "(?-)",
                                  "(?i-:a)",
                                  "\\\xc3\xa9",
                                  "(?P<>a)",
                                  "(?P<a b>c)",
                                  R"([a-\p{Zl}])",
                                  R"([a-\d])",
                                  R"(\p{RGI_Emoji})",
                                  R"(\p{Basic_Emoji})"}) {
    EXPECT_THAT(Refusal(Regex, regex), HasSubstr("is not a supported regular expression")) << regex;
  }
  EXPECT_THAT(Refusal(Regex, std::string("\\p{L\0x}", 7)), HasSubstr("is no known class"));
  for (const char* const regex : {"a(?=b)", "a(?!b)", "(?<=a)b", "(?<!a)b"}) {
    EXPECT_THAT(Refusal(Regex, regex), HasSubstr("look-around is not supported")) << regex;
  }
  for (const char* const regex : {R"((a)\1)", R"((?P<n>a)(?P=n))", R"((?<n>a)\k<n>)"}) {
    EXPECT_THAT(Refusal(Regex, regex), HasSubstr("back-references are not supported")) << regex;
  }
  for (const char* const regex : {"a(^b)", "x$y", R"(a\bb)"}) {
    EXPECT_THAT(Refusal(Regex, regex), HasSubstr("has no finite text")) << regex;
  }
}

TEST(GrammarRegex, BoundsItsClassesAndBoundaries) {
  const auto repeated = [](const std::string& text, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += text;
    return all;
  };
  for (const std::string& regex :
       {"(?i)" + repeated(R"([\x00-\x{10FFFF}])", 10'000), repeated(R"(\pL)", 80'000),
        repeated(R"(\p{Zl})", 40'000), repeated(R"(\pC)", 80'000),
        repeated("[" + repeated(R"(\pL)", 90) + "]", 900)}) {
    EXPECT_THAT(Refusal(Regex, regex), HasSubstr("ranges of characters")) << regex.substr(0, 40);
  }
  for (const char* const regex : {R"((\pL\b){100000})", R"((?:\b){1000000})",
                                  R"(((a?\b){999}){999})", R"((((?:){999}){999}){999}\b)"}) {
    EXPECT_THAT(Refusal(Regex, regex), HasSubstr("is too large with \\b")) << regex;
  }
  // Their work is linear: no end of a class's name, and classes that take long to compute.
  EXPECT_TRUE(Has(Regex(repeated("[" + repeated(":", 52'000) + "x]", 5)), ":x::x"));
  EXPECT_TRUE(Has(Regex(repeated("[" + repeated("[:", 30'000) + "x]", 4)), ":x[x"));
  EXPECT_TRUE(Has(Regex("(" + repeated(R"(\pC|)", 1'000) + "a)"), "\n"));
  EXPECT_TRUE(Has(Regex(repeated("^", 50'000) + "a" + repeated("$", 50'000)), "a"));
  EXPECT_TRUE(Has(Regex(R"(\p{L}{1,60}(?: [\p{L}\p{M}'-]{1,60}){0,9}\b)"), "\xc3\x89t\xc3\xa9 on"));
}

#ifdef TRIPTYCH_RE2

// Random regular expressions of RE2's syntax, and texts.
class Writer {
 public:
  std::string Regex(int depth) {
    std::string text = Sequence(depth);
    while (random_() % 4 == 0) text += "|" + Sequence(depth);
    return text;
  }
  std::string Text() {
    std::string text;
    for (auto length = random_() % 6; length > 0; --length) {
      text += One({"a", "b", "A", "K", "\xe2\x84\xaa", "\xc5\xbf", "s", "_", " ", "\n", "\r", "1",
                   "-", "\xc3\xa9", "\xc3\x89", "\xcf\x83", "\xcf\x82", "\xf0\x9f\x98\x80"});
    }
    return text;
  }

 private:
  std::string One(std::initializer_list<const char*> choices) {
    return choices.begin()[random_() % choices.size()];
  }
  std::string Sequence(int depth) {
    std::string text;
    for (auto length = random_() % 4; length > 0; --length) text += Atom(depth);
    return text;
  }
  std::string Atom(int depth) {
    // Also what RE2 refuses.
    if (random_() % 40 == 0) {
      return One({"{2}",         "*",           "+?",      "??",         "{1}{2}", "{01}",
                  "{,2}",        "(?-)",        "(?i-:a)", "\\\xc3\xa9", "\\_",    "\\-",
                  "(?P<>a)",     "(?P<m>a)",    "\\Q\\E",  "[[:]",       "[a[:b]", "[+-[:a]",
                  "[\\p{Zl}-a]", "[a-\\p{Zl}]", "[a-\\d]", "[\\d-a]",    "[b-a]",  "[[:x:]]",
                  "\\pX",        "(?i",         ")",       "\\8",        "\\18",   "\\x{41",
                  "\\q",         "\\"});
    }
    switch (random_() % 6) {
      case 0:
        return One({"^", "$", "\\A", "\\z", "\\b", "\\b", "\\B", "(?i)", "(?m)", "(?s)", "(?-m)",
                    "(?-i)", "(?U)", "(?m-s)"});
      case 1:
      case 2:
        if (depth > 0) {
          std::string group =
              One({"(", "(?:", "(?i:", "(?s:", "(?m:", "(?-s:", "(?im-s:", "(?P<n>"});
          group += Regex(depth - 1);
          return Repeated(group + ")");
        }
        [[fallthrough]];
      case 3:
        return Repeated(One(
            {"[ab]",    "[^a]", "[a-s_]",     "[[:alpha:]]", "[[:^word:]_]", "[^\\W1]",
             "[]^-]",   "[^k]", "\\d",        "\\D",         "\\w",          "\\W",
             "\\s",     "\\S",  "\\p{Greek}", "\\PN",        "\\p{^Greek}",  "[\\p{Greek}\\p{Sc}]",
             "[^\\PZ]", ".",    "."}));
      default:
        return Repeated(One({"a", "b", "A", "k", "s", "_", " ", "\\n", "1", "-", "\xc3\xa9",
                             "\xcf\x83", "\\x{17f}", "\\x41", "\\101", "\\x{1F600}", "\\Qa.\\E"}));
    }
  }
  // Counts are small: no text needs more than kMaxPositions.
  std::string Repeated(const std::string& atom) {
    return atom + One({"", "", "", "", "*", "+", "?", "{2}", "{1,2}", "{0,2}?", "{2,}", "*?"});
  }

  std::mt19937 random_{1};
};

TEST(GrammarRegex, HasTheTextsOfRe2) {
  RE2::Options options;
  options.set_log_errors(false);
  Writer writer;
  int refused = 0, matched = 0;
  for (int i = 0; i < 3000; ++i) {
    const std::string text = writer.Regex(2);
    const RE2 expected(text, options);
    if (!expected.ok()) {
      ASSERT_THAT(Refusal(Regex, text), HasSubstr("is not a supported regular expression"))
          << text << ": " << expected.error();
      ++refused;
      continue;
    }
    std::shared_ptr<const Grammar> grammar;
    try {
      grammar = Regex(text);
    } catch (const GrammarError& error) {
      ASSERT_STREQ(error.what(), "has no finite text") << text;
    }
    for (int j = 0; j < 20; ++j) {
      const std::string value = writer.Text();
      const bool matches = RE2::FullMatch(value, expected);
      ASSERT_EQ(grammar != nullptr && Has(grammar, value), matches)
          << text << " of " << testing::PrintToString(value);
      matched += matches ? 1 : 0;
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_LT(refused, 600);
  EXPECT_GT(matched, 6000);
}

TEST(GrammarRegex, HasTheClassesOfRe2) {
  const RE2 assigned("[\\pL\\pM\\pN\\pP\\pS\\pZ\\pC]");  // in RE2's version of Unicode
  for (const char* const text : {"\\pC",
                                 "\\p{Cc}",
                                 "\\pL",
                                 "\\p{Lt}",
                                 "\\p{Lo}",
                                 "\\pM",
                                 "\\p{No}",
                                 "\\p{Pd}",
                                 "\\p{Sc}",
                                 "\\pZ",
                                 "\\p{Latin}",
                                 "\\p{Cyrillic}",
                                 "\\p{Common}",
                                 "\\p{Inherited}",
                                 "(?i)\\p{Lu}",
                                 "(?i)\\P{Ll}",
                                 "(?i)\\W",
                                 "(?i)[^\\pL]",
                                 "(?i)[a-z\xce\xb1-\xcf\x89]",
                                 "(?i)\\x{1e9e}"}) {
    const RE2 expected(text);
    const auto grammar = Regex(text);
    for (char32_t c = 0; c < 0x2070; ++c) {
      // Versions of Unicode differ in the cases of other letters.
      if ((c >= 0x180 && c < 0x370) || (c >= 0x530 && c < 0x2000)) continue;
      const std::string value = ToUtf8(c);
      if (!RE2::FullMatch(value, assigned)) continue;
      ASSERT_EQ(Has(grammar, value), RE2::FullMatch(value, expected))
          << text << " of " << testing::PrintToString(value);
    }
  }
}

#endif  // TRIPTYCH_RE2

}  // namespace
}  // namespace triptych::grammar::regex_test
