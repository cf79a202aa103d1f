// Tokenizer of the tests' models.
#ifndef TRIPTYCH_TESTS_SUPPORT_TOKENIZER_H_
#define TRIPTYCH_TESTS_SUPPORT_TOKENIZER_H_

#include <cstdint>
#include <memory>

#include "engine/text/byte_tokenizer.h"

namespace triptych {

inline constexpr int32_t kBeginToken = ByteTokenizer::kBegin;
inline constexpr int32_t kEndToken = ByteTokenizer::kEnd;

// Every byte is a token.
inline std::shared_ptr<const Tokenizer> TestTokenizer() {
  return std::make_shared<const ByteTokenizer>();
}

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_SUPPORT_TOKENIZER_H_
