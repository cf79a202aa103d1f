// Grammar of a regular expression, of the tests' tokens.
#ifndef TRIPTYCH_TESTS_SUPPORT_REGEX_GRAMMAR_H_
#define TRIPTYCH_TESTS_SUPPORT_REGEX_GRAMMAR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/token_grammar.h"
#include "tests/grammar/texts.h"
#include "tests/support/tokenizer.h"

namespace triptych {

inline std::shared_ptr<const grammar::TokenGrammar> RegexGrammar(std::string_view text) {
  const std::shared_ptr<const Tokenizer> tokenizer = TestTokenizer();
  std::vector<std::string> texts(tokenizer->vocab_size());
  for (int32_t token = 0; token < tokenizer->vocab_size(); ++token) {
    texts[token] = tokenizer->Decode(token);
  }
  return std::make_shared<grammar::TokenGrammar>(grammar::Regex(text),
                                                 std::make_shared<grammar::Vocabulary>(texts));
}

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_SUPPORT_REGEX_GRAMMAR_H_
