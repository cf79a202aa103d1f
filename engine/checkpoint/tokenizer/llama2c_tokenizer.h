// The tokenizer file of llama2.c: the pieces and scores of a SentencePiece BPE. Torch-free.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_LLAMA2C_TOKENIZER_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_LLAMA2C_TOKENIZER_H_

#include <memory>
#include <string>
#include <string_view>

#include "engine/text/tokenizer.h"

namespace triptych::checkpoint {

// The file of a checkpoint's directory that holds it.
inline constexpr const char* kLlama2cTokenizerFile = "tokenizer.bin";

// `bytes` are what the file holds, `source` is its name for messages. Tokens 0 to 2 are what is
// unknown, begins and ends texts. Throws LoadError.
std::shared_ptr<const Tokenizer> ParseLlama2cTokenizer(std::string_view bytes,
                                                       const std::string& source);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_LLAMA2C_TOKENIZER_H_
