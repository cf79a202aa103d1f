// Text to token ids and back. Torch-free; implementations are immutable and thread-safe.
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

// What the text of a special token inside a text is.
enum class SpecialTokens {
  kAsText,  // text, as any other: whoever wrote it cannot end a turn with it
  kParsed,  // the token
};

struct TextPart {
  std::string_view text;
  SpecialTokens special = SpecialTokens::kAsText;
};

// A token and the text that names it, which is not what it decodes to.
struct SpecialToken {
  int32_t token;
  std::string text;
};

// Where a token is decoded.
enum class TextPosition {
  kStart,   // no token before it stands for bytes
  kInside,  // one does
};

// A text that cannot be encoded: it is too long, or what the tokenizer's file says takes too long
// on it, makes too much of it or fails.
class EncodeError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // The tokens of the text that the parts are together, without begin or end token. Bytes of a part
  // that are no UTF-8 are U+FFFD to all but the byte tokenizer. Throws EncodeError.
  virtual std::vector<int32_t> Encode(std::span<const TextPart> parts) const = 0;
  std::vector<int32_t> Encode(std::string_view text,
                              SpecialTokens special = SpecialTokens::kAsText) const {
    const TextPart whole[] = {{text, special}};
    return Encode(whole);
  }

  // The bytes one token stands for inside a text, which need not be whole UTF-8 characters; none
  // for special tokens and for what is no token of the tokenizer.
  virtual std::string Decode(int32_t token) const = 0;
  // The same where it stands. These pieces of a list of tokens, one after the other, are
  // Decode(tokens).
  std::string Decode(int32_t token, TextPosition position) const;
  std::string Decode(std::span<const int32_t> tokens) const;

  // Whether texts begin with a space that encoding added, so that decoding drops it.
  virtual bool drops_leading_space() const { return false; }

  // The most bytes of a text that become one token: n bytes are at least n divided by it tokens.
  // kAnyBytes where any number may become one token or none, as where text is cut away or unknown.
  static constexpr int64_t kAnyBytes = int64_t{1} << 32;
  virtual int64_t max_token_bytes() const { return kAnyBytes; }

  // Its kind, for people: "bytes", "byte-level BPE" or "BPE".
  virtual std::string_view kind() const = 0;
  // One more than the greatest token.
  virtual int32_t vocab_size() const = 0;
  virtual std::span<const SpecialToken> special_tokens() const { return {}; }
  // The token that is put before a text, if one is.
  virtual std::optional<int32_t> begin_token() const = 0;
  // The tokens that end a text, at least one; the first is the one that is put after a text.
  virtual std::span<const int32_t> end_tokens() const = 0;
  int32_t end_token() const { return end_tokens().front(); }
};

// Decodes the tokens of one text as they come.
class TokenStream {
 public:
  // What stands before and is not wanted, as a prompt's tokens.
  void Skip(const Tokenizer& tokenizer, std::span<const int32_t> tokens);
  // The bytes of the next one.
  std::string Push(const Tokenizer& tokenizer, int32_t token);

 private:
  TextPosition position_ = TextPosition::kStart;
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_TEXT_TOKENIZER_H_
