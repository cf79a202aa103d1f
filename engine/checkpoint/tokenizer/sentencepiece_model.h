// Reader and writer of tokenizer.model, the file of the SentencePiece library.
//
// The SentencePiece library is not used: it contains a copy of Protobuf's symbols, which other
// libraries of the same program would then call.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_SENTENCEPIECE_MODEL_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_SENTENCEPIECE_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/tokenizer/scored_pieces.h"
#include "engine/text/tokenizer.h"

namespace triptych::checkpoint {

// Reads byte pair encoding whose normalization keeps every character. `begins`: puts the model's
// begin token before texts. The model's end token, if it has one, and `ends` end texts. `source` is
// the file's name for messages. Throws LoadError.
std::shared_ptr<const Tokenizer> ParseSentencePieceModel(std::string_view model,
                                                         const std::string& source, bool begins,
                                                         const std::vector<int32_t>& ends);

// A model that is read back as this vocabulary. The begin token and the first end token are read
// back if they are control tokens. REQUIRES: the space is U+2581; there is an end token.
std::string WriteSentencePieceModel(const ScoredVocabulary& vocabulary);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_SENTENCEPIECE_MODEL_H_
