// Byte pair encoding: applies the merge of lowest rank until none is possible.
#ifndef TRIPTYCH_ENGINE_TEXT_BPE_H_
#define TRIPTYCH_ENGINE_TEXT_BPE_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/base/keyed_hash.h"

namespace triptych {

// Two adjacent tokens that become one. Among the merges possible in a word, the one of lowest rank
// is applied first; among equal ranks, the leftmost.
struct Merge {
  int32_t left;
  int32_t right;
  int32_t rank;
  int32_t result;
};

// The byte that a token named "<0x00>" to "<0xFF>" stands for; nullopt for other names.
std::optional<char> FallbackByte(std::string_view piece);

struct BpeOptions {
  enum Symbols { kCharacters, kBytes };

  Symbols symbols = kCharacters;        // of a word, before the first merge
  bool byte_fallback = false;           // a character without a token becomes "<0x00>" of each byte
  std::optional<int32_t> unknown = {};  // token of other characters; absent: they are dropped
  bool fuse_unknown = false;            // adjacent unknown characters become one token
  bool ignore_merges = false;           // a word that is a token is encoded as it
  // By token; empty if all tokens are used. Merges may produce an unused token. If it remains in
  // the end, it is split into the two tokens last found to form it in the text, as SentencePiece
  // does.
  std::vector<bool> unused = {};
};

class Bpe {
 public:
  // Buffers of Encode; one workspace serves all words of a text.
  struct Workspace {
    struct Symbol {
      int32_t token;  // -1 once merged into the previous symbol
      int32_t previous;
      int32_t next;
    };
    std::vector<Symbol> symbols;
    // Possible merges: rank << 32 | position of the left token in `symbols`.
    std::vector<uint64_t> queue;
    // The two tokens that each unused token is split into.
    std::unordered_map<uint64_t, std::pair<int32_t, int32_t>, KeyedHash> parts;
    int64_t candidates = 0;  // merges examined so far, of all words: the cost of encoding
  };

  // `pieces`: the words that tokens stand for, "" for tokens without one. REQUIRES: pieces other
  // than "" are distinct, and merges refer to tokens among them.
  Bpe(std::vector<std::string> pieces, const std::vector<Merge>& merges, BpeOptions options);
  Bpe(const Bpe&) = delete;
  Bpe& operator=(const Bpe&) = delete;

  // Appends the tokens of a word, in O(n log n). REQUIRES: UTF-8, unless symbols are bytes.
  void Encode(std::string_view word, Workspace& work, std::vector<int32_t>& tokens) const;

  // Maximum bytes of a word that become one token, m: n bytes become at least n / m tokens. Absent
  // if any number of bytes may become no token, or one unknown token.
  std::optional<size_t> MaxTokenBytes() const;

 private:
  std::optional<int32_t> Find(std::string_view piece) const;
  // Index in merges_ of the merge of two tokens, or of the slot for it.
  size_t Slot(int32_t left, int32_t right) const;
  const Merge* FindMerge(int32_t left, int32_t right) const;
  void Split(std::string_view word, Workspace& work) const;
  bool IsUnused(int32_t token) const { return !options_.unused.empty() && options_.unused[token]; }
  void Push(Workspace& work, int32_t left, int32_t right) const;
  // Appends a token, or the tokens that it is split into.
  void Add(int32_t token, const Workspace& work, std::vector<int32_t>& tokens) const;

  std::vector<std::string> pieces_;
  std::unordered_map<std::string_view, int32_t, KeyedHash> tokens_;  // by piece
  std::vector<Merge> merges_;  // a hash table with open addressing; left is -1 in empty slots
  KeyedHash hash_;
  std::array<std::optional<int32_t>, 256> bytes_;  // the tokens of single bytes
  BpeOptions options_;
};

// SentencePiece's merges: any two tokens whose concatenation is a token, the highest score of the
// result first. Absent if there are more than `most`: a piece of n bytes may be the result of n - 1
// merges. REQUIRES: a score for each piece.
std::optional<std::vector<Merge>> MergesByScore(const std::vector<std::string>& pieces,
                                                const std::vector<float>& scores, size_t most);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_TEXT_BPE_H_
