#include "engine/checkpoint/tokenizer/chat_templates.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/quoted.h"
#include "engine/checkpoint/config/json_fields.h"
#include "engine/checkpoint/tokenizer/gguf_tokenizer.h"

namespace triptych::checkpoint {
namespace {

constexpr const char* kTemplateFile = "chat_template.jinja";
constexpr const char* kTemplateFolder = "additional_chat_templates";
constexpr const char* kJinja = ".jinja";
constexpr std::string_view kGgufKey = "tokenizer.chat_template";
constexpr size_t kMaxTemplateNameBytes = 64;

// Letters, digits, '-', '_' and '.', which is not the first: a name is also a file's.
bool IsTemplateName(const std::string& name) {
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  return !name.empty() && name.size() <= kMaxTemplateNameBytes && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), is_allowed);
}

// Templates from several places of one checkpoint.
class Collector {
 public:
  explicit Collector(std::string source) : source_(std::move(source)) {}

  // `place` names the template in messages.
  void Add(const std::string& place, const std::string& name, std::string text) {
    if (!IsTemplateName(name)) {
      if (warnings_.size() < kMaxTemplates) {
        warnings_.push_back("the chat template " + Quoted(name) + " of " + place +
                            " is passed over; allowed in names: 1 to 64 letters, digits, '-', '_' "
                            "and '.', which is not the first");
      }
      return;
    }
    if (text.size() > kMaxTemplateBytes) {
      throw LoadError(source_ + ": " + place + " is " + std::to_string(text.size()) +
                      " bytes; allowed: at most " + std::to_string(kMaxTemplateBytes));
    }
    texts_[name] = std::move(text);
    if (texts_.size() <= kMaxTemplates) return;
    throw LoadError(source_ + ": has " + std::to_string(texts_.size()) +
                    " chat templates or more; allowed: at most " + std::to_string(kMaxTemplates));
  }

  std::map<std::string, std::string> TakeTexts() { return std::move(texts_); }
  std::vector<std::string> TakeWarnings() { return std::move(warnings_); }

 private:
  const std::string source_;
  std::map<std::string, std::string> texts_;
  std::vector<std::string> warnings_;
};

void AddGguf(const GgufFile& file, Collector& templates) {
  for (const auto& [key, value] : file.metadata().items()) {
    if (!key.starts_with(kGgufKey) || !value.is_string()) continue;
    const std::string rest = key.substr(kGgufKey.size());
    if (!rest.empty() && rest.front() != '.') continue;
    // tokenizer.chat_template goes before tokenizer.chat_template.default.
    if (rest == std::string(".") + kDefaultTemplate && file.metadata().contains(kGgufKey)) continue;
    templates.Add(key, rest.empty() ? kDefaultTemplate : rest.substr(1), value.get<std::string>());
  }
}

void AddConfig(const Json& value, Collector& templates) {
  constexpr const char* kPlace = "tokenizer_config.json: chat_template";
  if (value.is_string()) return templates.Add(kPlace, kDefaultTemplate, value.get<std::string>());
  if (!value.is_array()) return;
  for (const Json& entry : value) {
    if (!entry.is_object()) continue;
    const Json name = entry.value("name", Json());
    const Json text = entry.value("template", Json());
    if (name.is_string() && text.is_string()) {
      templates.Add(kPlace, name.get<std::string>(), text.get<std::string>());
    }
  }
}

// The files of a directory's templates.
std::vector<std::filesystem::path> TemplateFiles(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> files;
  const std::filesystem::path folder = directory / kTemplateFolder;
  std::error_code error;
  if (Exists(folder)) {
    for (std::filesystem::directory_iterator i(folder, error), end; !error && i != end;
         i.increment(error)) {
      if (i->path().extension() == kJinja) files.push_back(i->path());
    }
  }
  if (error) throw LoadError(folder.string() + ": cannot be read: " + error.message());
  std::sort(files.begin(), files.end());
  if (Exists(directory / kTemplateFile)) files.push_back(directory / kTemplateFile);
  return files;
}

void AddFiles(const std::filesystem::path& directory, Collector& templates) {
  for (const std::filesystem::path& file : TemplateFiles(directory)) {
    const bool is_default = file == directory / kTemplateFile;
    templates.Add(file.filename().string(), is_default ? kDefaultTemplate : file.stem().string(),
                  ReadText(file, kMaxTemplateBytes));
  }
}

std::map<std::string, std::string> AsFiles(std::map<std::string, std::string> texts) {
  std::map<std::string, std::string> files;
  for (auto& [name, text] : texts) {
    files.emplace(name == kDefaultTemplate ? kTemplateFile
                                           : std::string(kTemplateFolder) + "/" + name + kJinja,
                  std::move(text));
  }
  return files;
}

}  // namespace

OwnChatTemplates ReadChatTemplates(const OpenedCheckpoint& checkpoint) {
  OwnChatTemplates own;
  Collector templates(checkpoint.path.string());
  if (checkpoint.gguf) {
    AddGguf(*checkpoint.gguf, templates);
    own.special_tokens = GgufSpecialTexts(checkpoint.gguf->metadata());
  } else {
    if (auto fields = ReadFieldsIfThere(checkpoint.path / "tokenizer_config.json")) {
      for (const char* const name : {"bos_token", "eos_token", "pad_token", "unk_token"}) {
        Json value = fields->Has(name) ? fields->Take(name, Json()) : Json();
        if (value.is_object() && value.contains("content")) value = Json(value["content"]);
        if (value.is_string()) own.special_tokens.emplace(name, value.get<std::string>());
      }
      if (fields->Has("chat_template")) AddConfig(fields->Take("chat_template", Json()), templates);
    }
    AddFiles(checkpoint.path, templates);
  }
  own.texts = templates.TakeTexts();
  own.warnings = templates.TakeWarnings();
  return own;
}

std::map<std::string, std::string> ChatTemplateFiles(const std::filesystem::path& directory) {
  Collector templates(directory.string());
  AddFiles(directory, templates);
  return AsFiles(templates.TakeTexts());
}

std::map<std::string, std::string> ChatTemplateFiles(const GgufFile& gguf) {
  Collector templates(gguf.name());
  AddGguf(gguf, templates);
  return AsFiles(templates.TakeTexts());
}

}  // namespace triptych::checkpoint
