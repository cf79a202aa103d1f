// SentencePiece's byte pair encoding as a vocabulary of pieces with scores.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_SCORED_PIECES_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_SCORED_PIECES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/text/added_tokens.h"
#include "engine/text/tokenizer.h"

namespace triptych::checkpoint {

// A token: its text, its kind and its order of merging.
struct ScoredPiece {
  enum Kind {
    kNormal,       // texts consist of it
    kUnknown,      // replaces text that is no token
    kControl,      // special
    kUserDefined,  // is found in texts before anything is merged
    kUnused,       // only a step of merging to longer pieces; otherwise split again
    kByte,         // "<0x00>" to "<0xFF>"
  };

  std::string text;  // may be empty if texts do not consist of it
  float score = 0;   // the highest is merged first
  Kind kind = kNormal;
};

// U+2581, the space of most vocabularies.
inline constexpr const char* kMetaspace = "\xE2\x96\x81";

// The maximum number of pieces: in memory a piece takes more than in a file.
inline constexpr size_t kMaxScoredPieces = size_t{1} << 20;

struct ScoredVocabulary {
  std::vector<ScoredPiece> pieces = {};  // by token
  // Tokens after the pieces, in the order of their ids, which may have gaps.
  std::vector<AddedToken> added = {};
  std::string space = " ";  // the space of normal pieces
  bool adds_space = true;   // puts a space before texts
  std::optional<int32_t> begin = {};
  std::vector<int32_t> ends = {};
};

// Makes the pieces that end texts control tokens, except those that texts cannot do without: bytes
// and single characters.
void MakeEndsControl(ScoredVocabulary& vocabulary);

// Throws LoadError if no further piece is allowed.
void CheckPieceCount(const ScoredVocabulary& vocabulary, const std::string& source);

// Calls MakeEndsControl. Throws LoadError if the pieces make no tokenizer; `source` is the file's
// name for messages.
std::shared_ptr<const Tokenizer> MakeScoredTokenizer(ScoredVocabulary vocabulary,
                                                     const std::string& source);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_SCORED_PIECES_H_
