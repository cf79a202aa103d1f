// Tokenizers of byte pair encoding, or of another model of words, with the steps that
// tokenizer.json describes.
#ifndef TRIPTYCH_ENGINE_TEXT_BPE_TOKENIZER_H_
#define TRIPTYCH_ENGINE_TEXT_BPE_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/added_tokens.h"
#include "engine/text/bpe.h"
#include "engine/text/normalizer.h"
#include "engine/text/pre_tokenizer.h"
#include "engine/text/tokenizer.h"
#include "engine/text/word_model.h"

namespace triptych {

struct BpeTokenizerParts {
  std::vector<AddedToken> added;
  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  std::vector<std::string> pieces;  // as Bpe takes them
  std::vector<Merge> merges;
  BpeOptions options;
  // Not null: the model of words instead of byte pair encoding. `pieces` and `merges` are then
  // empty.
  std::unique_ptr<const WordModel> words = {};
  std::vector<std::string> decoded;  // bytes of each token inside a text
  bool drops_leading_space = false;
  std::optional<int32_t> begin;
  std::vector<int32_t> ends;
};

class BpeTokenizer final : public Tokenizer {
 public:
  // REQUIRES: what Bpe and AddedTokenFinder require; tokens are less than decoded.size(); `ends` is
  // not empty. Throws EncodeError if added tokens cannot be normalized.
  explicit BpeTokenizer(BpeTokenizerParts parts);

  using Tokenizer::Decode;
  using Tokenizer::Encode;
  std::vector<int32_t> Encode(std::span<const TextPart> parts) const override;
  std::string Decode(int32_t token) const override;
  bool drops_leading_space() const override { return drops_leading_space_; }
  int64_t max_token_bytes() const override { return max_token_bytes_; }
  std::string_view kind() const override {
    if (words_ != nullptr) return words_->kind();
    return byte_level_ ? "byte-level BPE" : "BPE";
  }
  int32_t vocab_size() const override { return static_cast<int32_t>(decoded_.size()); }
  std::span<const SpecialToken> special_tokens() const override { return special_; }
  std::optional<int32_t> begin_token() const override { return begin_; }
  std::span<const int32_t> end_tokens() const override { return ends_; }

 private:
  // max_token_bytes() of a tokenizer that drops no text.
  int64_t FindMaxTokenBytes() const;

  std::vector<SpecialToken> special_;
  AddedTokenFinder raw_;
  std::vector<NormalizerStep> normalizer_;
  AddedTokenFinder normalized_;
  std::vector<PreTokenizerStep> pre_tokenizer_;
  Bpe bpe_;
  std::unique_ptr<const WordModel> words_;  // instead of bpe_, unless it is null
  std::vector<std::string> decoded_;
  bool byte_level_;
  bool drops_leading_space_;
  std::optional<int32_t> begin_;
  std::vector<int32_t> ends_;
  int64_t max_token_bytes_;  // last: computed from the members above
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_TEXT_BPE_TOKENIZER_H_
