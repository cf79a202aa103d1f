// SentencePiece's byte pair encoding as programs beside it keep it: pieces with scores. Torch-free.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_SCORED_PIECES_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_SCORED_PIECES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/text/tokenizer.h"

namespace triptych::checkpoint {

// A token: what it is, its text and how early it is merged.
struct ScoredPiece {
  enum Kind {
    kNormal,       // text is made of it
    kUnknown,      // stands for what is no token
    kControl,      // special
    kUserDefined,  // stands for its text before anything is merged
    kUnused,       // merged on the way to longer ones, and else taken apart again
    kByte,         // "<0x00>" to "<0xFF>"
  };

  std::string text;  // may be empty where text is not made of it
  float score = 0;   // the highest is merged first
  Kind kind = kNormal;
};

// U+2581, which stands for a space in most vocabularies.
inline constexpr const char* kMetaspace = "\xE2\x96\x81";

// As many as a file may hold: what is kept of one takes more than it takes there.
inline constexpr size_t kMaxScoredPieces = size_t{1} << 20;

struct ScoredVocabulary {
  std::vector<ScoredPiece> pieces = {};  // by token
  std::string space = " ";               // what stands for a space in normal pieces
  bool adds_space = true;                // before texts
  std::optional<int32_t> begin = {};
  std::vector<int32_t> ends = {};
};

// Throws LoadError where there are too many. Before one is added.
void CheckPieceCount(const ScoredVocabulary& vocabulary, const std::string& source);

// Throws LoadError where pieces make no tokenizer; `source` is the file's name for messages.
std::shared_ptr<const Tokenizer> MakeScoredTokenizer(ScoredVocabulary vocabulary,
                                                     const std::string& source);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_SCORED_PIECES_H_
