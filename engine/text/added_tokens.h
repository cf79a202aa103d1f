// Tokens that stand for a text wherever it occurs, before anything is cut or merged. Torch-free.
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
  bool special = false;      // it stands for no text, and is a token only where that is asked for
  bool left_strip = false;   // takes the white space before it
  bool right_strip = false;  // and after it
  bool single_word = false;  // is a token only between what is no part of a word
  bool normalized = false;   // is looked for in the normalized text
};

// Longer ones are refused: a text is looked at so many times.
inline constexpr size_t kMaxAddedTokenBytes = 256;
// And more of a tokenizer's together: what finds them takes some 64 bytes for each.
inline constexpr size_t kMaxAddedBytes = size_t{4} << 20;

// The text that parts are together, as UTF-8.
struct JoinedText {
  std::string text;
  std::vector<TextRange> parsed;  // where special tokens are tokens
};
JoinedText Join(std::span<const TextPart> parts);

// Finds them.
class AddedTokenFinder {
 public:
  struct Match {
    TextRange range;
    int32_t token;
  };

  // REQUIRES: no text is empty or longer than kMaxAddedTokenBytes, all together no longer than
  // kMaxAddedBytes.
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);
  AddedTokenFinder(const AddedTokenFinder&) = delete;
  AddedTokenFinder& operator=(const AddedTokenFinder&) = delete;

  // Whether one of the tokens is special.
  bool finds_special() const;
  // The bytes of the longest text; 0 without tokens.
  size_t longest() const;

  // From left to right the longest that begins at each place, none inside another; special ones
  // only within one of the ranges `parsed`, which are in order.
  std::vector<Match> FindAll(std::string_view text, std::span<const TextRange> parsed) const;

 private:
  // The longest that begins the text, special ones only within the first `parsed` bytes of it; none
  // if that is null.
  const AddedToken* Longest(std::string_view text, size_t parsed) const;

  std::vector<AddedToken> tokens_;
  // A trie: nodes by their parent and byte; node 0 is the root.
  std::unordered_map<uint64_t, uint32_t, KeyedHash> children_;
  std::vector<const AddedToken*> ends_;  // the token that ends at a node
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_TEXT_ADDED_TOKENS_H_
