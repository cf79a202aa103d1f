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
#include <vector>

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
};

class Bpe {
 public:
  // What Encode works in; one of it serves any number of words.
  struct Workspace {
    struct Symbol {
      int32_t token;  // -1 once it is part of the one before
      int32_t previous;
      int32_t next;
    };
    std::vector<Symbol> symbols;
    // Merges that were possible: rank << 32 | the left one's position in `symbols`.
    std::vector<uint64_t> queue;
    int64_t candidates = 0;  // looked at so far, of all words: what encoding costs
  };

  // `pieces` are the words that tokens stand for, "" for what is none. REQUIRES: no two pieces but
  // "" are the same, and merges name tokens among them.
  Bpe(std::vector<std::string> pieces, const std::vector<Merge>& merges, BpeOptions options);
  Bpe(const Bpe&) = delete;
  Bpe& operator=(const Bpe&) = delete;

  // Adds the tokens of a word, in time n log n. REQUIRES: UTF-8 unless symbols are bytes.
  void Encode(std::string_view word, Workspace& work, std::vector<int32_t>& tokens) const;

 private:
  std::optional<int32_t> Find(std::string_view piece) const;
  // Where the merge of two tokens is, or would be.
  size_t Slot(int32_t left, int32_t right) const;
  const Merge* FindMerge(int32_t left, int32_t right) const;
  void Split(std::string_view word, Workspace& work) const;
  void Push(Workspace& work, int32_t left, int32_t right) const;

  std::vector<std::string> pieces_;
  std::unordered_map<std::string_view, int32_t> tokens_;  // by piece
  std::vector<Merge> merges_;  // a hash table with open addressing; left is -1 where there is none
  uint64_t hash_seed_;         // which no file knows
  std::array<std::optional<int32_t>, 256> bytes_;  // the tokens of single bytes
  BpeOptions options_;
};

// Merges as SentencePiece makes them: any two tokens that together are one, that of the highest
// score first. None for a piece whose score is below any merge's.
std::vector<Merge> MergesByScore(const std::vector<std::string>& pieces,
                                 const std::vector<float>& scores);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_TEXT_BPE_H_
