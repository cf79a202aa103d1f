#include "engine/text/normalizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/utf8.h"

namespace triptych::normalizer_test {
namespace {

template <typename... Steps>
std::vector<NormalizerStep> Sequence(Steps... steps) {
  std::vector<NormalizerStep> sequence;
  (sequence.emplace_back(std::move(steps)), ...);
  return sequence;
}

std::string Normal(const std::vector<NormalizerStep>& steps, std::string_view text) {
  EncodeBudget budget(text.size());
  return Normalize(steps, text, budget);
}

ReplaceStep ReplaceText(const std::string& what, const std::string& by) {
  return {Regex(what, Regex::Syntax::kLiteral, "field"), by, what.size()};
}

std::string Utf8(uint32_t c) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | (c >> shift & 0x3F)); };
  if (c < 0x80) return std::string(1, static_cast<char>(c));
  if (c < 0x800) return {static_cast<char>(0xC0 | c >> 6), tail(0)};
  if (c < 0x10000) return {static_cast<char>(0xE0 | c >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xF0 | c >> 18), tail(12), tail(6), tail(0)};
}

std::vector<std::string> Characters(std::string_view text) {
  std::vector<std::string> characters;
  while (!text.empty()) {
    characters.emplace_back(text.substr(0, FirstUtf8Piece(text).length));
    text.remove_prefix(characters.back().size());
  }
  return characters;
}

// The largest number of bytes of text per byte of its decomposed form, and of its composed form, by
// the argument for MostShrinkage's constant.
std::pair<double, double> FindShrinkage(UnicodeForm decomposed, UnicodeForm composed) {
  const auto decompose = Sequence(decomposed);
  const auto compose = Sequence(composed);
  std::vector<std::pair<std::string, std::vector<std::string>>> decomposing;
  std::map<std::string, size_t> longest;  // by decomposition: most bytes that decompose to it
  constexpr uint32_t kBlock = 256;        // few blocks have a character that decomposes
  for (uint32_t block = 0; block < 0x110000; block += kBlock) {
    if (block >= 0xD800 && block < 0xE000) continue;  // surrogates
    std::string text;
    for (uint32_t c = block; c < block + kBlock; ++c) text += Utf8(c);
    if (Normal(decompose, text) == text) continue;
    for (uint32_t c = block; c < block + kBlock; ++c) {
      const std::vector<std::string> elements = Characters(Normal(decompose, Utf8(c)));
      if (elements.size() == 1) {
        size_t& bytes = longest.try_emplace(elements[0], elements[0].size()).first->second;
        bytes = std::max(bytes, Utf8(c).size());
      }
      decomposing.emplace_back(Utf8(c), elements);
    }
  }
  const auto weight = [&](const std::string& element) {
    const auto found = longest.find(element);
    return found == longest.end() ? element.size() : found->second;
  };
  double most_decomposed = 1;
  for (const auto& [element, bytes] : longest) {
    most_decomposed =
        std::max(most_decomposed, static_cast<double>(bytes) / static_cast<double>(element.size()));
  }
  double most_composed = most_decomposed;  // the form can contain characters that do not compose
  for (const auto& [character, elements] : decomposing) {
    size_t weights = 0;
    for (const std::string& element : elements) weights += weight(element);
    EXPECT_GE(weights, character.size()) << character;
    if (Normal(compose, character) != character) continue;
    most_composed = std::max(most_composed,
                             static_cast<double>(weights) / static_cast<double>(character.size()));
  }
  return {most_decomposed, most_composed};
}

TEST(NormalizerTest, FormsShrinkATextAsMuchAsUnicodeSays) {
  EXPECT_EQ(FindShrinkage(UnicodeForm::kNfd, UnicodeForm::kNfc), std::pair(3.0, 3.5));
  EXPECT_EQ(FindShrinkage(UnicodeForm::kNfkd, UnicodeForm::kNfkc), std::pair(4.0, 4.0));
  EXPECT_EQ(Normal(Sequence(UnicodeForm::kNfc), "\u1fbe\u0308\u0301"), "\u0390");
  EXPECT_EQ(Normal(Sequence(UnicodeForm::kNfkc), "\U0001D400"), "A");
}

TEST(NormalizerTest, SaysHowMuchItShrinksATextAtMost) {
  EXPECT_EQ(MostShrinkage({}), 1);
  for (const UnicodeForm form :
       {UnicodeForm::kNfc, UnicodeForm::kNfd, UnicodeForm::kNfkc, UnicodeForm::kNfkd}) {
    EXPECT_EQ(MostShrinkage(Sequence(form)), 4);
  }
  EXPECT_EQ(MostShrinkage(Sequence(PrependStep{"▁"}, ReplaceText(" ", "▁"))), 1);
  EXPECT_EQ(MostShrinkage(Sequence(ReplaceText("▁", " "))), 3);
  EXPECT_EQ(MostShrinkage(Sequence(ReplaceText("abcde", "xy"), UnicodeForm::kNfc)), 12);
  // Any number of bytes can vanish.
  EXPECT_EQ(MostShrinkage(Sequence(ReplaceText("a", ""))), std::nullopt);
  EXPECT_EQ(MostShrinkage(Sequence(StripStep{true, false})), std::nullopt);
  EXPECT_EQ(MostShrinkage(Sequence(
                ReplaceStep{Regex("a+", Regex::Syntax::kPattern, "field"), "a", std::nullopt})),
            std::nullopt);
  std::vector<NormalizerStep> many;
  for (int i = 0; i < 32; ++i) many.emplace_back(UnicodeForm::kNfc);
  EXPECT_EQ(MostShrinkage(many), std::nullopt);
}

// Each single step makes at most 64 times its input.
TEST(NormalizerTest, StepsTogetherMakeNoMoreThanTheirTextAllows) {
  const std::string many(64, 'a');
  const std::string text(1000, 'a');
  EXPECT_EQ(Normal(Sequence(ReplaceText("a", many)), text).size(), 64'000u);
  EXPECT_THROW(Normal(Sequence(ReplaceText("a", many), ReplaceText("a", many)), text), EncodeError);
  // Parts of a text share the budget of the whole text.
  EncodeBudget budget(2);
  const auto prepend = Sequence(PrependStep{std::string(4000, 'a')});
  for (int i = 0; i < 16; ++i) EXPECT_EQ(Normalize(prepend, "b", budget).size(), 4001u);
  try {
    Normalize(prepend, "b", budget);
    ADD_FAILURE() << "it may write on";
  } catch (const EncodeError& e) {
    EXPECT_STREQ(e.what(),
                 "the tokenizer's steps write 68017 bytes for this text; allowed: at most 65664, "
                 "and 1073741824 at once");
  }
  // Unicode forms too: U+FDFA becomes eleven times its three bytes.
  EncodeBudget small(0);
  const auto form = Sequence(UnicodeForm::kNfkc);
  std::string ligatures;
  for (int i = 0; i < 2100; ++i) ligatures += "\uFDFA";
  EXPECT_THROW(Normalize(form, ligatures, small), EncodeError);
  EXPECT_EQ(Normal(form, ligatures).size(), 2100u * 33);
}

}  // namespace
}  // namespace triptych::normalizer_test
