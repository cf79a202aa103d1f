// Checks that every tokenizer must pass.
#ifndef TRIPTYCH_TESTS_SUPPORT_TOKENIZER_CHECKS_H_
#define TRIPTYCH_TESTS_SUPPORT_TOKENIZER_CHECKS_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "engine/base/utf8.h"
#include "engine/text/text_stream.h"
#include "engine/text/tokenizer.h"

namespace triptych {

// Random tokens, some outside of the vocabulary: the concatenated pieces of a stream equal the
// tokens decoded at once, also after a prompt; no piece ends inside a character.
inline void ExpectStreamsAreWholeTexts(const Tokenizer& tokenizer) {
  std::mt19937 random(11);
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<int32_t> tokens(random() % 20);
    for (int32_t& token : tokens) {
      token =
          static_cast<int32_t>(random() % (static_cast<uint32_t>(tokenizer.vocab_size()) + 4)) - 2;
    }
    SCOPED_TRACE(testing::PrintToString(tokens) + " of " + std::string(tokenizer.kind()));
    const std::string whole = tokenizer.Decode(tokens);
    const auto prompt = std::span(tokens).first(random() % (tokens.size() + 1));
    TokenStream stream, after_prompt;
    after_prompt.Skip(tokenizer, prompt);
    Utf8Stream characters;
    std::string streamed, text, continued = tokenizer.Decode(prompt);
    for (size_t i = 0; i < tokens.size(); ++i) {
      const std::string bytes = stream.Push(tokenizer, tokens[i]);
      const std::string shown = characters.Push(bytes);
      ASSERT_EQ(FindInvalidUtf8(shown), std::nullopt);
      streamed += bytes;
      text += shown;
      if (i >= prompt.size()) continued += after_prompt.Push(tokenizer, tokens[i]);
    }
    ASSERT_EQ(streamed, whole);
    ASSERT_EQ(continued, whole);
    ASSERT_EQ(text + characters.Flush(), ToValidUtf8(whole));
  }
}

// A megabyte of one letter, and of spaces, round-trips: work quadratic in a text's length would
// take hours.
inline void ExpectMegabytesComeBack(const Tokenizer& tokenizer) {
  for (const char letter : {'a', ' '}) {
    const std::string text(1'000'000, letter);
    EXPECT_TRUE(tokenizer.Decode(tokenizer.Encode(text)) == text)
        << '"' << letter << "\" of " << tokenizer.kind();
  }
}

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_SUPPORT_TOKENIZER_CHECKS_H_
