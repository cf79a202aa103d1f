// Every byte is a token. Torch-free.
#ifndef TRIPTYCH_ENGINE_TEXT_BYTE_TOKENIZER_H_
#define TRIPTYCH_ENGINE_TEXT_BYTE_TOKENIZER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer.h"

namespace triptych {

// Ids 0 to 255 are bytes, 256 begins a text, 257 ends it.
class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr int32_t kBegin = 256;
  static constexpr int32_t kEnd = 257;
  static constexpr int32_t kVocabSize = 258;

  std::vector<int32_t> Encode(std::string_view text) const override;
  std::string Decode(int32_t token) const override;
  int32_t vocab_size() const override { return kVocabSize; }
  int32_t begin_token() const override { return kBegin; }
  int32_t end_token() const override { return kEnd; }
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_TEXT_BYTE_TOKENIZER_H_
