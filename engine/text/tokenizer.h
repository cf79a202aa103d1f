// Text to token ids and back. Torch-free; implementations are immutable and thread-safe.
#ifndef TRIPTYCH_ENGINE_TEXT_TOKENIZER_H_
#define TRIPTYCH_ENGINE_TEXT_TOKENIZER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace triptych {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // The tokens of a text, without begin or end token.
  virtual std::vector<int32_t> Encode(std::string_view text) const = 0;
  // The bytes one token stands for, which need not be whole UTF-8 characters; none for special
  // tokens. REQUIRES: 0 <= token < vocab_size().
  virtual std::string Decode(int32_t token) const = 0;

  virtual int32_t vocab_size() const = 0;
  virtual int32_t begin_token() const = 0;
  virtual int32_t end_token() const = 0;
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_TEXT_TOKENIZER_H_
