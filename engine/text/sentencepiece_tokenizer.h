// The tokenizers of the SentencePiece library. Torch-free.
#ifndef TRIPTYCH_ENGINE_TEXT_SENTENCEPIECE_TOKENIZER_H_
#define TRIPTYCH_ENGINE_TEXT_SENTENCEPIECE_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/added_tokens.h"
#include "engine/text/tokenizer.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace triptych {

class SentencePieceTokenizer final : public Tokenizer {
 public:
  // `model` is what a tokenizer.model holds, `source` its name for messages. `begins` says whether
  // its begin token is put before texts; its end token ends them, if it has one, and so do `ends`.
  // Throws LoadError.
  SentencePieceTokenizer(const std::string& model, const std::string& source, bool begins,
                         const std::vector<int32_t>& ends);
  ~SentencePieceTokenizer() override;

  using Tokenizer::Decode;
  using Tokenizer::Encode;
  std::vector<int32_t> Encode(std::span<const TextPart> parts) const override;
  std::string Decode(int32_t token) const override;
  bool drops_leading_space() const override { return drops_leading_space_; }
  bool keeps_text() const override { return false; }
  std::string_view kind() const override { return "SentencePiece"; }
  int32_t vocab_size() const override { return static_cast<int32_t>(decoded_.size()); }
  std::span<const SpecialToken> special_tokens() const override { return special_; }
  std::optional<int32_t> begin_token() const override { return begin_; }
  std::span<const int32_t> end_tokens() const override { return ends_; }

 private:
  std::unique_ptr<const sentencepiece::SentencePieceProcessor> processor_;
  std::vector<SpecialToken> special_;
  std::unique_ptr<const AddedTokenFinder> finder_;  // of those
  std::vector<std::string> decoded_;
  bool drops_leading_space_;
  std::optional<int32_t> begin_;
  std::vector<int32_t> ends_;
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_TEXT_SENTENCEPIECE_TOKENIZER_H_
