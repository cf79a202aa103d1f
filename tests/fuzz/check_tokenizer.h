// Contract of every tokenizer, checked by fuzz targets.
#ifndef TRIPTYCH_TESTS_FUZZ_CHECK_TOKENIZER_H_
#define TRIPTYCH_TESTS_FUZZ_CHECK_TOKENIZER_H_

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer.h"
#include "tests/fuzz/input.h"

namespace triptych {

// Text for targets whose input has none: with a byte that is not UTF-8, and a token's name.
inline constexpr std::string_view kHostileText = "a b\xff <s> 12";

inline void CheckTokenizer(const Tokenizer& tokenizer, std::string_view text) {
  for (const SpecialTokens special : {SpecialTokens::kAsText, SpecialTokens::kParsed}) {
    std::vector<int32_t> tokens;
    try {
      tokens = tokenizer.Encode(text, special);
    } catch (const EncodeError& e) {
      PromiseClearLine(e.what(), 1000);
      continue;
    }
    const int64_t most = tokenizer.max_token_bytes();
    Promise(most == Tokenizer::kAnyBytes || std::ssize(tokens) * most >= std::ssize(text),
            "a text is of as many tokens as its length says");
    TokenStream stream;
    std::string streamed;
    for (const int32_t token : tokens) {
      Promise(token >= 0 && token < tokenizer.vocab_size(), "a text is of the vocabulary's tokens");
      streamed += stream.Push(tokenizer, token);
    }
    Promise(streamed == tokenizer.Decode(tokens), "a stream is the whole text");
  }
}

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_FUZZ_CHECK_TOKENIZER_H_
