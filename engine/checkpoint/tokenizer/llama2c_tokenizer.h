// Reader of llama2.c's tokenizer file: the pieces and scores of a SentencePiece BPE.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_LLAMA2C_TOKENIZER_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_LLAMA2C_TOKENIZER_H_

#include <memory>
#include <string>
#include <string_view>

#include "engine/text/tokenizer.h"

namespace triptych::checkpoint {

// The file's name in a checkpoint's directory.
inline constexpr const char* kLlama2cTokenizerFile = "tokenizer.bin";

// `bytes` is the content of the file, `source` its name for messages. Tokens 0, 1 and 2 are the
// unknown token, the begin token and the end token. Throws LoadError.
std::shared_ptr<const Tokenizer> ParseLlama2cTokenizer(std::string_view bytes,
                                                       const std::string& source);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_LLAMA2C_TOKENIZER_H_
