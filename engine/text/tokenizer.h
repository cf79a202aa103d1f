// Tokenizer: text to token ids and back. Implementations are immutable and thread-safe.
#ifndef TRIPTYCH_ENGINE_TEXT_TOKENIZER_H_
#define TRIPTYCH_ENGINE_TEXT_TOKENIZER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace triptych {

// Treatment of a special token's text inside a text.
enum class SpecialTokens {
  kAsText,  // plain text: its author cannot end a turn with it
  kParsed,  // the special token
};

struct TextPart {
  std::string_view text;
  SpecialTokens special = SpecialTokens::kAsText;
};

// A token and the text that names it. The token does not decode to that text.
struct SpecialToken {
  int32_t token;
  std::string text;
};

// Position of a token that is decoded.
enum class TextPosition {
  kStart,   // no earlier token stands for bytes
  kInside,  // an earlier one does
};

// A text that cannot be encoded: it is too long, or a step of the tokenizer takes too long on it,
// writes too much or fails.
class EncodeError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // The tokens of the concatenated parts, without begin or end token. Invalid UTF-8 in a part
  // counts as U+FFFD, except in the byte tokenizer. Throws EncodeError.
  virtual std::vector<int32_t> Encode(std::span<const TextPart> parts) const = 0;
  std::vector<int32_t> Encode(std::string_view text,
                              SpecialTokens special = SpecialTokens::kAsText) const {
    const TextPart whole[] = {{text, special}};
    return Encode(whole);
  }

  // The bytes that a token stands for inside a text, which need not be whole UTF-8 characters.
  // Empty for special tokens and for ids that are not tokens.
  virtual std::string Decode(int32_t token) const = 0;
  // The same at a position. Concatenated for a list of tokens, these are Decode(tokens).
  std::string Decode(int32_t token, TextPosition position) const;
  std::string Decode(std::span<const int32_t> tokens) const;

  // True if encoding adds a space before a text, which decoding drops.
  virtual bool drops_leading_space() const { return false; }

  // Maximum bytes of a text that become one token, m: n bytes become at least n / m tokens.
  // kAnyBytes if any number may become one token or none, since text may be dropped or unknown.
  static constexpr int64_t kAnyBytes = int64_t{1} << 32;
  virtual int64_t max_token_bytes() const { return kAnyBytes; }

  // Kind, for display: "bytes", "byte-level BPE", "BPE", "Unigram" or "WordLevel".
  virtual std::string_view kind() const = 0;
  // The greatest token id plus one.
  virtual int32_t vocab_size() const = 0;
  virtual std::span<const SpecialToken> special_tokens() const { return {}; }
  // The text that names a special token; empty for others.
  std::string_view SpecialText(int32_t token) const;
  // The token to put before a text, if there is one.
  virtual std::optional<int32_t> begin_token() const = 0;
  // The tokens that end a text, at least one. The first is the one to put after a text.
  virtual std::span<const int32_t> end_tokens() const = 0;
  int32_t end_token() const { return end_tokens().front(); }
};

// Decodes the tokens of one text one by one.
class TokenStream {
 public:
  // Skips tokens before the wanted ones, such as a prompt's.
  void Skip(const Tokenizer& tokenizer, std::span<const int32_t> tokens);
  // The bytes of the next token.
  std::string Push(const Tokenizer& tokenizer, int32_t token);

 private:
  TextPosition position_ = TextPosition::kStart;
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_TEXT_TOKENIZER_H_
