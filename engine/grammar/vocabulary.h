// Trie of the bytes of a model's tokens.
#ifndef TRIPTYCH_ENGINE_GRAMMAR_VOCABULARY_H_
#define TRIPTYCH_ENGINE_GRAMMAR_VOCABULARY_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace triptych::grammar {

// One bit for each token: token t is bit t % 64 of word t / 64.
using TokenMask = std::vector<uint64_t>;

// Tokens by their bytes. Some 12 bytes of memory for each byte of the tokens.
class TokenTrie {
 public:
  TokenTrie() = default;
  // `tokens` are those whose texts it has; none is empty.
  TokenTrie(std::span<const std::string> texts, std::vector<int32_t> tokens);

  // Nodes are in the order of a walk that visits a node before those under it.
  struct Node {
    int32_t after = 0;        // the first node that is not under it
    int32_t first_token = 0;  // into the tokens
    uint16_t depth = 0;       // bytes before its own
    uint8_t byte = 0;
  };

  std::span<const Node> nodes() const { return nodes_; }
  // The tokens whose last byte is node n's.
  std::span<const int32_t> TokensOf(size_t n) const {
    const auto first = static_cast<size_t>(nodes_[n].first_token);
    const size_t last = n + 1 < nodes_.size() ? nodes_[n + 1].first_token : tokens_.size();
    return std::span(tokens_).subspan(first, last - first);
  }

 private:
  std::vector<Node> nodes_;
  std::vector<int32_t> tokens_;  // by their bytes
};

// Immutable and thread-safe.
class Vocabulary {
 public:
  // `texts[i]` has the bytes of token i; tokens without bytes, such as special ones, and of 2^16
  // bytes or more are no text.
  explicit Vocabulary(std::span<const std::string> texts);

  int32_t size() const { return size_; }
  // Bytes of the longest token.
  int32_t max_bytes() const { return max_bytes_; }
  const TokenTrie& tokens() const { return all_; }

  // Plain tokens are up to 32 whole plain characters: those that a JSON string holds as they are,
  // which are all except ", \ and control characters.

  // The plain tokens of at most `characters` characters.
  struct PlainTokens {
    int32_t characters = 0;
    TokenMask mask;
  };
  // By ascending characters; the last one has all plain tokens. At least one.
  std::span<const PlainTokens> plain() const { return plain_; }
  // The tokens that are not plain.
  const TokenTrie& others() const { return others_; }

 private:
  int32_t size_;
  int32_t max_bytes_ = 0;
  TokenTrie all_, others_;
  std::vector<PlainTokens> plain_;
};

}  // namespace triptych::grammar

#endif  // TRIPTYCH_ENGINE_GRAMMAR_VOCABULARY_H_
