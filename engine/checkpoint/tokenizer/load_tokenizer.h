// Loader of the tokenizer of a checkpoint.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_LOAD_TOKENIZER_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_LOAD_TOKENIZER_H_

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "engine/checkpoint/open_checkpoint.h"
#include "engine/checkpoint/tokenizer/tokenizer_settings.h"
#include "engine/model/config.h"
#include "engine/text/tokenizer.h"

namespace triptych::checkpoint {

// The maximum size of a tokenizer's file.
inline constexpr uint64_t kMaxTokenizerBytes = uint64_t{64} << 20;

// The tokenizer of a checkpoint: from the metadata of a GGUF file; in a directory from the first of
// tokenizer.json, tokenizer.model (SentencePiece) and tokenizer.bin (llama2.c) that is there.
// Without these files the tokens of a model of model_type "triptych" are bytes, and other models
// are refused. In a directory, texts end with eos_token of tokenizer_config.json and with
// eos_token_id of generation_config.json, or otherwise of config.json. Adds to `notes`, unless it
// is null. Throws LoadError.
std::shared_ptr<const Tokenizer> LoadTokenizer(const std::filesystem::path& checkpoint,
                                               TokenizerNotes* notes = nullptr);
std::shared_ptr<const Tokenizer> LoadTokenizer(const OpenedCheckpoint& checkpoint,
                                               TokenizerNotes* notes = nullptr);

// The files of a checkpoint's tokenizer, chat templates and generation config, by file name, for
// another checkpoint made of it. A directory's files are unchanged. A GGUF file's metadata becomes
// such files. Throws LoadError, also if no file can express a GGUF file's tokenizer.
std::map<std::string, std::string> TokenizerFiles(const std::filesystem::path& checkpoint);

// A tokenizer may have more tokens than the model: no output has them, and requests and texts with
// one are refused. Throws LoadError if one of them begins or ends texts; `source` is the model's
// name for messages.
void CheckVocabulary(const Tokenizer& tokenizer, const ModelConfig& config,
                     const std::string& source);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_LOAD_TOKENIZER_H_
