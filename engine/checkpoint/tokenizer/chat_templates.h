// Chat templates of a checkpoint.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_CHAT_TEMPLATES_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_CHAT_TEMPLATES_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/open_checkpoint.h"

namespace triptych::checkpoint {

// The maximum size of one template, and the maximum number of a checkpoint's templates.
inline constexpr uint64_t kMaxTemplateBytes = uint64_t{1} << 20;
inline constexpr size_t kMaxTemplates = 64;

inline constexpr const char* kDefaultTemplate = "default";

// The checkpoint's own templates (Jinja) by name, and the texts of special tokens that
// tokenizer_config.json or a GGUF file names, such as bos_token.
struct OwnChatTemplates {
  std::map<std::string, std::string> texts;  // kDefaultTemplate is served unless options say else
  std::map<std::string, std::string> special_tokens = {};
  std::vector<std::string> warnings = {};  // one line each: templates that are passed over
};

// In a GGUF file, tokenizer.chat_template is the default template, and
// tokenizer.chat_template.NAME are the others. In a directory they come from these places, of which
// a later one replaces templates of the same name:
//   - chat_template of tokenizer_config.json: a text, or a list of {"name", "template"};
//   - additional_chat_templates/NAME.jinja;
//   - chat_template.jinja, the default template.
// Throws LoadError, also for more than kMaxTemplates.
OwnChatTemplates ReadChatTemplates(const OpenedCheckpoint& checkpoint);

// The templates of a directory's own files, or of a GGUF file as such files, by file name.
std::map<std::string, std::string> ChatTemplateFiles(const std::filesystem::path& directory);
std::map<std::string, std::string> ChatTemplateFiles(const GgufFile& gguf);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_CHAT_TEMPLATES_H_
