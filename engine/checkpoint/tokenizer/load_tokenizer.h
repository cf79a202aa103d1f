// Which tokenizer a checkpoint has. Torch-free.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_LOAD_TOKENIZER_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_LOAD_TOKENIZER_H_

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "engine/checkpoint/open_checkpoint.h"
#include "engine/model/config.h"
#include "engine/text/tokenizer.h"

namespace triptych::checkpoint {

// Of a file that holds a tokenizer.
inline constexpr uint64_t kMaxTokenizerBytes = uint64_t{64} << 20;

// The tokenizer of a checkpoint. Of a GGUF file it is in its metadata. In a directory it is
// tokenizer.json if that is there, else tokenizer.model of SentencePiece, else tokenizer.bin of
// llama2.c; without any of them every byte is a token of a model in Triptych's own form, and any
// other is refused. What ends texts there is eos_token of tokenizer_config.json and eos_token_id of
// generation_config.json or else of config.json. Throws LoadError.
std::shared_ptr<const Tokenizer> LoadTokenizer(const std::filesystem::path& checkpoint);
std::shared_ptr<const Tokenizer> LoadTokenizer(const OpenedCheckpoint& checkpoint);

// The files of a checkpoint's tokenizer, of how conversations are put into words and of how text is
// generated, for another checkpoint made of it: each by its name. Of a directory, those that there
// are, as they are; of a GGUF file, files that say what it says. Throws LoadError, also where there
// are no such files of a tokenizer.
std::map<std::string, std::string> TokenizerFiles(const std::filesystem::path& checkpoint);

// The text of the checkpoint's own chat template: of a GGUF file in its metadata; of a directory
// chat_template.jinja, or else what tokenizer_config.json names chat_template, if that is a text.
// Throws LoadError.
std::optional<std::string> ReadChatTemplate(const OpenedCheckpoint& checkpoint);

// Throws LoadError if the tokenizer has tokens that the model has not; `source` is the model's name
// for messages.
void CheckVocabulary(const Tokenizer& tokenizer, const ModelConfig& config,
                     const std::string& source);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_LOAD_TOKENIZER_H_
