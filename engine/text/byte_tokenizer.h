// Tokenizer whose tokens are bytes.
#ifndef TRIPTYCH_ENGINE_TEXT_BYTE_TOKENIZER_H_
#define TRIPTYCH_ENGINE_TEXT_BYTE_TOKENIZER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer.h"

namespace triptych {

// Ids 0 to 255 are bytes, 256 begins a text, 257 ends it. No text encodes to 256 or 257.
class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr int32_t kBegin = 256;
  static constexpr int32_t kEnd = 257;
  static constexpr int32_t kVocabSize = 258;

  using Tokenizer::Decode;
  using Tokenizer::Encode;
  std::vector<int32_t> Encode(std::span<const TextPart> parts) const override;
  std::string Decode(int32_t token) const override;
  int64_t max_token_bytes() const override { return 1; }
  std::string_view kind() const override { return "bytes"; }
  int32_t vocab_size() const override { return kVocabSize; }
  std::optional<int32_t> begin_token() const override { return kBegin; }
  std::span<const int32_t> end_tokens() const override { return kEnds; }

 private:
  static constexpr int32_t kEnds[] = {kEnd};
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_TEXT_BYTE_TOKENIZER_H_
