// Interface of the models, other than byte pair encoding, that turn a word into tokens.
#ifndef TRIPTYCH_ENGINE_TEXT_WORD_MODEL_H_
#define TRIPTYCH_ENGINE_TEXT_WORD_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace triptych {

// Immutable and thread-safe.
class WordModel {
 public:
  virtual ~WordModel() = default;

  // Appends the tokens of a word, in time linear in its length. REQUIRES: valid UTF-8, not empty.
  virtual void Encode(std::string_view word, std::vector<int32_t>& tokens) const = 0;
  // As Bpe::MaxTokenBytes.
  virtual std::optional<size_t> MaxTokenBytes() const = 0;
  // As Tokenizer::kind.
  virtual std::string_view kind() const = 0;
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_TEXT_WORD_MODEL_H_
