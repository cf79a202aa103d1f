// Masks of tokens, compared with what the matcher accepts token by token.
#include "engine/grammar/token_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/grammar/texts.h"

namespace triptych::grammar::token_grammar_test {
namespace {

std::vector<std::string> Tokens() {
  std::vector<std::string> tokens = {
      "",   "{\"",      "\":", "\", \"", "\"}",  "null",         "\xf0\x9f", "\x98\x80",
      "aa", "aaaaaaaa", "}]",  "[1,2",   ", ",   "\"a\": [",     "\"a\": [", "1]}",
      "nu", "ll",       "é€😀", "éa",     "\x7f", "\xed\xa0\x80", "a\xc3"};
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  return tokens;
}

bool IsSet(const TokenMask& mask, size_t token) {
  return (mask[token / 64] >> (token % 64) & 1) != 0;
}

// Walks at random, and compares every mask with the matcher.
void CheckWalk(const std::shared_ptr<const Grammar>& grammar, uint64_t seed) {
  const std::vector<std::string> tokens = Tokens();
  const TokenGrammar masks(grammar, std::make_shared<Vocabulary>(tokens));
  std::mt19937_64 random(seed);
  Matcher matcher = masks.Start();
  for (int step = 0; step < 60; ++step) {
    const auto mask = masks.MaskOf(matcher);
    ASSERT_NE(mask, nullptr);
    std::vector<size_t> next;
    for (size_t token = 0; token < tokens.size(); ++token) {
      Matcher copy = matcher;
      const bool fits = !tokens[token].empty() && copy.Advance(tokens[token]);
      ASSERT_EQ(IsSet(*mask, token), fits) << "step " << step << ", token " << tokens[token];
      if (fits) next.push_back(token);
    }
    if (next.empty()) break;
    ASSERT_TRUE(matcher.Advance(tokens[next[random() % next.size()]]));
  }
}

TEST(TokenGrammar, MasksAreWhatTheMatcherAccepts) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    CheckWalk(Schema("{}"), seed);
    CheckWalk(Schema(R"({"type": "object", "properties": {"a": {"type": "array", "items":
        {"type": ["null", "integer"]}}, "b": {"type": "string", "maxLength": 20}},
        "required": ["a"]})"),
              seed);
    CheckWalk(Schema(R"({"type": "string", "minLength": 12, "maxLength": 40})"), seed);
    CheckWalk(Schema(R"({"type": "string", "minLength": 1, "maxLength": 2})"), seed);
    CheckWalk(Regex(".{3}a*[^a]{0,5}"), seed);
    CheckWalk(Regex("[^e-f]*"), seed);
    CheckWalk(Regex("(?:a|aa){20,50}(?:\"b\"|, ){3,90}"), seed);
    CheckWalk(Gbnf("root ::= \"{\" (root [,]){0,100} \"}\" | [a-z]{30} | \"\xf0\x9f\x98\x80\"\n"),
              seed);
  }
}

TEST(TokenGrammar, RefusesTooManyBeginnings) {
  std::string many = "[a-c]+0";
  for (int i = 1; i < 2000; ++i) many += "|[a-c]+" + std::to_string(i);
  const auto vocabulary = std::make_shared<Vocabulary>(Tokens());
  EXPECT_THROW(TokenGrammar(Regex(many), vocabulary), GrammarError);
}

// A mask of such a grammar takes seconds without a bound: the states after each token are new.
TEST(TokenGrammar, BoundsTheWorkOfAMask) {
  std::vector<std::string> tokens = Tokens();
  for (char a = 'a'; a <= 'z'; ++a) {
    for (char b = 'a'; b <= 'z'; ++b) {
      for (char c = 'a'; c <= 'z'; ++c) tokens.push_back({a, b, c, a, b, c, b, a});
    }
  }
  const auto vocabulary = std::make_shared<Vocabulary>(tokens);
  // As a regular expression, it is refused.
  const std::string hostile = "(([^A]{0,30} [a-m]){0,30} [b-q]){0,30}";
  const auto compile = [&](std::string_view text) {
    return std::make_shared<TokenGrammar>(Gbnf("root ::= " + std::string(text) + "\n"), vocabulary);
  };
  EXPECT_THAT(Refusal(compile, hostile), testing::HasSubstr("can read in too many ways"));
  // Later in the text, the sequence fails.
  const auto later = compile("\"xx\" " + hostile);
  Matcher matcher = later->Start();
  ASSERT_TRUE(matcher.Advance("xx"));
  EXPECT_EQ(later->MaskOf(matcher), nullptr);
}

TEST(TokenGrammar, KeepsMasksOfLongRepetitions) {
  const std::vector<std::string> tokens = Tokens();
  const TokenGrammar masks(Regex("a{100000}"), std::make_shared<Vocabulary>(tokens));
  Matcher matcher = masks.Start();
  ASSERT_TRUE(matcher.Advance(std::string(1000, 'a')));
  const auto mask = masks.MaskOf(matcher);
  ASSERT_TRUE(matcher.Advance("aaa"));
  EXPECT_EQ(masks.MaskOf(matcher), mask);  // the same object
  ASSERT_TRUE(matcher.Advance(std::string(100'000 - 1003 - 2, 'a')));
  EXPECT_FALSE(IsSet(*masks.MaskOf(matcher), 9)) << "eight more letters";
  EXPECT_TRUE(IsSet(*masks.MaskOf(matcher), 8)) << "two more letters";
}

}  // namespace
}  // namespace triptych::grammar::token_grammar_test
