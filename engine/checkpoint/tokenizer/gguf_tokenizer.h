// Reader of the tokenizer in a GGUF file's metadata.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_GGUF_TOKENIZER_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_GGUF_TOKENIZER_H_

#include <map>
#include <memory>
#include <string>

#include "engine/base/json.h"
#include "engine/checkpoint/tokenizer/tokenizer_settings.h"
#include "engine/text/tokenizer.h"

namespace triptych::checkpoint {

// The tokenizer that the keys "tokenizer.ggml..." of `metadata` describe: SentencePiece's BPE
// ("llama") or byte-level BPE ("gpt2"), whose pre-tokenizer "tokenizer.ggml.pre" names. The tokens
// eos, eot and eom end texts, and tokens that EndsTurns; they are special, whatever their type.
// Refuses unsupported settings that change tokens. `source` is the file's name for messages. Adds
// to `notes`, unless it is null. Throws LoadError.
std::shared_ptr<const Tokenizer> ParseGgufTokenizer(const Json& metadata, const std::string& source,
                                                    TokenizerNotes* notes = nullptr);

// The same tokenizer as files of a directory, by file name: tokenizer.model for SentencePiece's
// BPE, tokenizer.json for byte-level BPE, and their settings. Throws LoadError, also if no such
// file can express the tokenizer.
std::map<std::string, std::string> GgufTokenizerFiles(const Json& metadata,
                                                      const std::string& source);

// The texts of begin and end token, as bos_token and eos_token, if the metadata names them.
std::map<std::string, std::string> GgufSpecialTexts(const Json& metadata);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_GGUF_TOKENIZER_H_
