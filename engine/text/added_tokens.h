// Added tokens, each of which matches its text before pre-tokenization and merges.
#ifndef TRIPTYCH_ENGINE_TEXT_ADDED_TOKENS_H_
#define TRIPTYCH_ENGINE_TEXT_ADDED_TOKENS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/base/keyed_hash.h"
#include "engine/text/regex.h"
#include "engine/text/tokenizer.h"

namespace triptych {

struct AddedToken {
  int32_t token;
  std::string text;
  bool special = false;      // decodes to no text; matches only where special tokens are parsed
  bool left_strip = false;   // includes the white space before it
  bool right_strip = false;  // includes the white space after it
  bool single_word = false;  // matches only between non-word characters
  bool normalized = false;   // matches in the normalized text
};

// Maximum bytes of an added token; a text is scanned up to this many times.
inline constexpr size_t kMaxAddedTokenBytes = 256;
// Maximum bytes of a tokenizer's added tokens together; finding them takes some 64 bytes of memory
// for each.
inline constexpr size_t kMaxAddedBytes = size_t{4} << 20;

// The concatenation of parts, as valid UTF-8.
struct JoinedText {
  std::string text;
  std::vector<TextRange> parsed;  // where special tokens are parsed
};
JoinedText Join(std::span<const TextPart> parts);

// Finds added tokens in a text.
class AddedTokenFinder {
 public:
  struct Match {
    TextRange range;
    int32_t token;
  };

  // REQUIRES: no text is empty or longer than kMaxAddedTokenBytes; all together have at most
  // kMaxAddedBytes.
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);
  AddedTokenFinder(const AddedTokenFinder&) = delete;
  AddedTokenFinder& operator=(const AddedTokenFinder&) = delete;

  // True if one of the tokens is special.
  bool finds_special() const;
  // Bytes of the longest text; 0 without tokens.
  size_t longest() const;

  // From left to right, the longest match at each offset, without overlaps. Special tokens match
  // only within one of the ranges `parsed`, which are in order.
  std::vector<Match> FindAll(std::string_view text, std::span<const TextRange> parsed) const;

 private:
  // The longest token that begins the text; null if there is none. Special tokens match only within
  // its first `parsed` bytes.
  const AddedToken* Longest(std::string_view text, size_t parsed) const;

  std::vector<AddedToken> tokens_;
  // A trie: nodes by their parent and byte; node 0 is the root.
  std::unordered_map<uint64_t, uint32_t, KeyedHash> children_;
  std::vector<const AddedToken*> ends_;  // the token that ends at a node
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_TEXT_ADDED_TOKENS_H_
