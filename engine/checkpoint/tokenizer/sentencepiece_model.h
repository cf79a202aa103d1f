// The tokenizer.model of a checkpoint: what the SentencePiece library trains. Torch-free.
//
// Read here and not by that library, which brings a copy of Protobuf's symbols along that other
// libraries of the same program then call.
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

// Byte pair encoding whose normalization keeps every character. `begins` says whether its begin
// token is put before texts; its end token ends them, if it has one, and so do `ends`. `source` is
// the file's name for messages. Throws LoadError.
std::shared_ptr<const Tokenizer> ParseSentencePieceModel(std::string_view model,
                                                         const std::string& source, bool begins,
                                                         const std::vector<int32_t>& ends);

// The model that is read back as this vocabulary; its begin token and its first end token are, if
// they are control tokens. REQUIRES: U+2581 stands for a space, and an end token.
std::string WriteSentencePieceModel(const ScoredVocabulary& vocabulary);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_SENTENCEPIECE_MODEL_H_
