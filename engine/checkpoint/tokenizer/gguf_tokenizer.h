// The tokenizer in a GGUF file's metadata. Torch-free.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_GGUF_TOKENIZER_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_GGUF_TOKENIZER_H_

#include <map>
#include <memory>
#include <string>

#include "engine/base/json.h"
#include "engine/text/tokenizer.h"

namespace triptych::checkpoint {

// The tokenizer that `metadata` of a file describes by its keys "tokenizer.ggml...":
// SentencePiece's BPE ("llama") or a byte-level one ("gpt2"), whose pre-tokenizer
// "tokenizer.ggml.pre" names. Texts end with its tokens eos, eot and eom. What changes tokens and
// is not supported is refused. `source` is the file's name for messages. Throws LoadError.
std::shared_ptr<const Tokenizer> ParseGgufTokenizer(const Json& metadata,
                                                    const std::string& source);

// The same tokenizer as files of a directory, by their names: tokenizer.model of SentencePiece's
// BPE, tokenizer.json of a byte-level one, and what goes with them. Throws LoadError, also where no
// such file says the same.
std::map<std::string, std::string> GgufTokenizerFiles(const Json& metadata,
                                                      const std::string& source);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_GGUF_TOKENIZER_H_
