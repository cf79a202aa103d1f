#include "engine/text/bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace triptych::bpe_test {
namespace {

using ::testing::ElementsAre;

std::vector<int32_t> Encode(const Bpe& bpe, std::string_view word) {
  Bpe::Workspace work;
  std::vector<int32_t> tokens;
  bpe.Encode(word, work, tokens);
  return tokens;
}

// The definition, in quadratic time: repeatedly merges the first pair of lowest rank.
std::vector<int32_t> Naive(std::vector<int32_t> tokens, const std::vector<Merge>& merges) {
  for (;;) {
    const Merge* best = nullptr;
    size_t place = 0;
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      for (const Merge& merge : merges) {
        if (merge.left != tokens[i] || merge.right != tokens[i + 1]) continue;
        if (best == nullptr || merge.rank < best->rank) best = &merge, place = i;
      }
    }
    if (best == nullptr) return tokens;
    tokens[place] = best->result;
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  }
}

TEST(BpeTest, MakesTheMergeOfTheLeastRankFirstAndTheLeftmostOfThose) {
  const Bpe bpe({"a", "b", "c", "ab", "bc", "aa"}, {{1, 2, 0, 4}, {0, 1, 1, 3}, {0, 0, 2, 5}}, {});
  EXPECT_THAT(Encode(bpe, "abc"), ElementsAre(0, 4));
  EXPECT_THAT(Encode(bpe, "aaa"), ElementsAre(5, 0));
  EXPECT_THAT(Encode(bpe, "aab"), ElementsAre(0, 3));
  EXPECT_THAT(Encode(bpe, ""), ElementsAre());
}

TEST(BpeTest, IsTheDefinitionOnRandomWordsAndMerges) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<std::string> pieces = {"a", "b", "c"};
    std::vector<Merge> merges;
    for (int i = 0; i < 12; ++i) {
      const auto left = static_cast<int32_t>(random() % pieces.size());
      const auto right = static_cast<int32_t>(random() % pieces.size());
      const std::string made = pieces[left] + pieces[right];
      auto it = std::find(pieces.begin(), pieces.end(), made);
      if (it == pieces.end()) it = pieces.insert(pieces.end(), made);
      const auto same = [&](const Merge& m) { return m.left == left && m.right == right; };
      if (std::any_of(merges.begin(), merges.end(), same)) continue;
      merges.push_back({left, right, i, static_cast<int32_t>(it - pieces.begin())});
    }
    const Bpe bpe(pieces, merges, {});
    std::string word;
    std::vector<int32_t> symbols;
    for (size_t i = random() % 40; i > 0; --i) {
      symbols.push_back(static_cast<int32_t>(random() % 3));
      word += pieces[symbols.back()];
    }
    ASSERT_EQ(Encode(bpe, word), Naive(symbols, merges)) << word;
  }
}

// Every merge is examined once, when it becomes possible: at most three per letter.
TEST(BpeTest, TakesWorkInProportionToTheWord) {
  std::vector<std::string> pieces = {"a"};
  std::vector<Merge> merges;
  for (int32_t i = 0; i < 7; ++i) {
    pieces.push_back(pieces.back() + pieces.back());
    merges.push_back({i, i, i, i + 1});
  }
  const Bpe bpe(pieces, merges, {});
  for (const size_t length : {1'000, 10'000, 1'000'000}) {
    Bpe::Workspace work;
    std::vector<int32_t> tokens;
    bpe.Encode(std::string(length, 'a'), work, tokens);
    EXPECT_LE(work.candidates, static_cast<int64_t>(3 * length));
    EXPECT_LE(tokens.size(), length / 128 + 7);
  }
}

TEST(BpeTest, ACharacterThatIsNoTokenIsItsBytesOrUnknown) {
  BpeOptions options{.byte_fallback = true, .unknown = 0};
  const Bpe bpe({"?", "a", "<0xC3>", "<0xA9>"}, {}, options);
  EXPECT_THAT(Encode(bpe, "aé"), ElementsAre(1, 2, 3));
  EXPECT_THAT(Encode(bpe, "a\u00e8\u00e8a"), ElementsAre(1, 0, 0, 1));  // C3 A8
  options.fuse_unknown = true;
  EXPECT_THAT(Encode(Bpe({"?", "a"}, {}, options), "é中aé"), ElementsAre(0, 1, 0));
  EXPECT_THAT(Encode(Bpe({"?", "a"}, {}, {}), "éaé"), ElementsAre(1));
}

TEST(BpeTest, AWordThatIsATokenIsThatOneWhereMergesAreIgnored) {
  const std::vector<std::string> pieces = {"a", "b", "ab", "abab"};
  EXPECT_THAT(Encode(Bpe(pieces, {{0, 1, 0, 2}}, {}), "abab"), ElementsAre(2, 2));
  EXPECT_THAT(Encode(Bpe(pieces, {{0, 1, 0, 2}}, {.ignore_merges = true}), "abab"), ElementsAre(3));
}

TEST(BpeTest, MergesByScoreTakeTheHighestFirst) {
  const std::vector<std::string> pieces = {"a", "b", "c", "ab", "bc"};
  const auto merges = [&](const std::vector<float>& scores) {
    return MergesByScore(pieces, scores, /*most=*/2).value();
  };
  EXPECT_THAT(Encode(Bpe(pieces, merges({0, 0, 0, -2, -1}), {}), "abc"), ElementsAre(0, 4));
  EXPECT_THAT(Encode(Bpe(pieces, merges({0, 0, 0, -1, -2}), {}), "abc"), ElementsAre(3, 2));
  EXPECT_EQ(MergesByScore(pieces, {0, 0, 0, -1, -2}, /*most=*/1), std::nullopt);
}

// "ab" and "abc" are merged at first; at the end they are two and three tokens, or part of "abcd".
TEST(BpeTest, UnusedTokensAreSplitAgain) {
  const std::vector<std::string> pieces = {"a", "b", "c", "d", "ab", "abc", "abcd"};
  const std::vector<Merge> merges = {{0, 1, 0, 4}, {4, 2, 1, 5}, {5, 3, 2, 6}};
  const Bpe bpe(pieces, merges, {.unused = {false, false, false, false, true, true, false}});
  EXPECT_THAT(Encode(bpe, "abcd"), ElementsAre(6));
  EXPECT_THAT(Encode(bpe, "abc"), ElementsAre(0, 1, 2));
  EXPECT_THAT(Encode(bpe, "dabda"), ElementsAre(3, 0, 1, 3, 0));
  const Bpe last(pieces, merges, {.unused = {false, false, false, false, false, true, false}});
  EXPECT_THAT(Encode(last, "abcab"), ElementsAre(4, 2, 4));
}

TEST(BpeTest, SaysHowManyBytesBecomeOneToken) {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  std::vector<std::string> pieces = bytes;
  pieces.insert(pieces.end(), {"ab", "", "abc"});
  EXPECT_EQ(Bpe(bytes, {}, {.symbols = BpeOptions::kBytes}).MaxTokenBytes(), 1u);
  EXPECT_EQ(Bpe(pieces, {}, {.symbols = BpeOptions::kBytes}).MaxTokenBytes(), 3u);
  // A byte without a token is dropped, or becomes an unknown token, or part of one.
  pieces['x'] = "xx";
  EXPECT_EQ(Bpe(pieces, {}, {.symbols = BpeOptions::kBytes}).MaxTokenBytes(), std::nullopt);
  EXPECT_EQ(Bpe(pieces, {}, {.symbols = BpeOptions::kBytes, .unknown = 0}).MaxTokenBytes(), 4u);
  EXPECT_EQ(Bpe(pieces, {}, {.symbols = BpeOptions::kBytes, .unknown = 0, .fuse_unknown = true})
                .MaxTokenBytes(),
            std::nullopt);
  EXPECT_EQ(Bpe({"a", "<0x00>"}, {}, {.byte_fallback = true}).MaxTokenBytes(), std::nullopt);
  EXPECT_EQ(Bpe({"?", "abcde"}, {}, {.unknown = 0}).MaxTokenBytes(), 5u);
}

}  // namespace
}  // namespace triptych::bpe_test
