// Reader and writer of tokenizer.model, the file of the SentencePiece library.
//
// The SentencePiece library is not used: it contains a copy of Protobuf's symbols, which other
// libraries of the same program would then call.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_SENTENCEPIECE_MODEL_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_SENTENCEPIECE_MODEL_H_

#include <memory>
#include <string>
#include <string_view>

#include "engine/checkpoint/tokenizer/scored_pieces.h"
#include "engine/checkpoint/tokenizer/tokenizer_settings.h"
#include "engine/text/tokenizer.h"

namespace triptych::checkpoint {

// Reads byte pair encoding whose normalization keeps every character. Texts begin with the token
// that `settings` names, or else the model's own, unless settings.begins is false. The tokens of
// `settings` and the model's own end token, if it has one, end texts. Added tokens are found before
// anything is normalized. `source` is the file's name for messages. Adds to `notes`, unless it is
// null. Throws LoadError.
std::shared_ptr<const Tokenizer> ParseSentencePieceModel(std::string_view model,
                                                         const std::string& source,
                                                         const TokenizerSettings& settings,
                                                         TokenizerNotes* notes = nullptr);

// A model that is read back as this vocabulary. The begin token and the first end token are read
// back if they are control tokens. REQUIRES: the space is U+2581; there is an end token.
std::string WriteSentencePieceModel(const ScoredVocabulary& vocabulary);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_SENTENCEPIECE_MODEL_H_
