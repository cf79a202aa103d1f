// Trie of the bytes of a model's tokens.
#ifndef TRIPTYCH_ENGINE_GRAMMAR_VOCABULARY_H_
#define TRIPTYCH_ENGINE_GRAMMAR_VOCABULARY_H_

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/mutex.h"

namespace triptych::grammar {

// One bit for each token: token t is bit t % 64 of word t / 64.
using TokenMask = std::vector<uint64_t>;
using ByteSet = std::bitset<256>;

// Tokens by their bytes. Some 12 bytes of memory for each byte of the tokens.
class TokenTrie {
 public:
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
  friend class Vocabulary;

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
  const TokenTrie& tokens() const { return trie_; }

  // The tokens that have only some bytes, and a trie of all others.
  struct Parts {
    TokenMask only;
    TokenTrie others;
  };
  // Keeps the parts of the sets used last.
  std::shared_ptr<const Parts> Split(const ByteSet& bytes) const TRIPTYCH_EXCLUDES(mutex_);

 private:
  std::shared_ptr<const Parts> MakeParts(const ByteSet& bytes) const;

  int32_t size_;
  int32_t max_bytes_ = 0;
  TokenTrie trie_;
  mutable Mutex mutex_;
  mutable std::list<std::pair<ByteSet, std::shared_ptr<const Parts>>> parts_
      TRIPTYCH_GUARDED_BY(mutex_);  // used last first
};

}  // namespace triptych::grammar

#endif  // TRIPTYCH_ENGINE_GRAMMAR_VOCABULARY_H_
