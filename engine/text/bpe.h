// Byte pair encoding: joins the two neighbours that come first in a list of merges, until none of
// it is left. Torch-free.
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

// Two neighbours that become one token. Of those possible in a word the one with the least rank is
// made first, of those of a rank the leftmost.
struct Merge {
  int32_t left;
  int32_t right;
  int32_t rank;
  int32_t result;
};

// The byte that a token of this name stands for: "<0x00>" to "<0xFF>".
std::optional<char> FallbackByte(std::string_view piece);

struct BpeOptions {
  enum Symbols { kCharacters, kBytes };

  Symbols symbols = kCharacters;  // what words are before the first merge
  bool byte_fallback = false;  // a character that is no token is the tokens "<0x00>" of its bytes
  std::optional<int32_t> unknown = {};  // a character that is none otherwise; without it, nothing
  bool fuse_unknown = false;            // neighbours of those are one
  bool ignore_merges = false;           // a word that is a token is that token
  // By token, or empty if none is: merges make it, but where it is left in the end it is taken
  // apart again, into the two that were last found to make it in the text, as SentencePiece does.
  std::vector<bool> unused = {};
};

class Bpe {
 public:
  // What Encode works in; one of it serves all words of a text.
  struct Workspace {
    struct Symbol {
      int32_t token;  // -1 once it is part of the one before
      int32_t previous;
      int32_t next;
    };
    std::vector<Symbol> symbols;
    // Merges that were possible: rank << 32 | the left one's position in `symbols`.
    std::vector<uint64_t> queue;
    // What each unused token is taken apart into.
    std::unordered_map<uint64_t, std::pair<int32_t, int32_t>, KeyedHash> parts;
    int64_t candidates = 0;  // looked at so far, of all words: what encoding costs
  };

  // `pieces` are the words that tokens stand for, "" for what is none. REQUIRES: no two pieces but
  // "" are the same, and merges name tokens among them.
  Bpe(std::vector<std::string> pieces, const std::vector<Merge>& merges, BpeOptions options);
  Bpe(const Bpe&) = delete;
  Bpe& operator=(const Bpe&) = delete;

  // Adds the tokens of a word, in time n log n. REQUIRES: UTF-8 unless symbols are bytes.
  void Encode(std::string_view word, Workspace& work, std::vector<int32_t>& tokens) const;

  // The most bytes of a word that become one token: n bytes are at least n divided by it tokens.
  // None if any number may become nothing, or one unknown token.
  std::optional<size_t> MaxTokenBytes() const;

 private:
  std::optional<int32_t> Find(std::string_view piece) const;
  // Where the merge of two tokens is, or would be.
  size_t Slot(int32_t left, int32_t right) const;
  const Merge* FindMerge(int32_t left, int32_t right) const;
  void Split(std::string_view word, Workspace& work) const;
  bool IsUnused(int32_t token) const { return !options_.unused.empty() && options_.unused[token]; }
  void Push(Workspace& work, int32_t left, int32_t right) const;
  // Adds a token, or what it is taken apart into.
  void Add(int32_t token, const Workspace& work, std::vector<int32_t>& tokens) const;

  std::vector<std::string> pieces_;
  std::unordered_map<std::string_view, int32_t, KeyedHash> tokens_;  // by piece
  std::vector<Merge> merges_;  // a hash table with open addressing; left is -1 where there is none
  KeyedHash hash_;
  std::array<std::optional<int32_t>, 256> bytes_;  // the tokens of single bytes
  BpeOptions options_;
};

// Merges as SentencePiece makes them: any two tokens that together are one, that of the highest
// score first. None if they are more than `most`: a piece may be cut in as many places as it has
// bytes. REQUIRES: a score for each piece.
std::optional<std::vector<Merge>> MergesByScore(const std::vector<std::string>& pieces,
                                                const std::vector<float>& scores, size_t most);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_TEXT_BPE_H_
