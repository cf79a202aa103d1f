#include "engine/checkpoint/tokenizer/load_tokenizer.h"

#include <limits>
#include <optional>
#include <utility>

#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/checkpoint/config/families.h"
#include "engine/checkpoint/config/family.h"
#include "engine/checkpoint/config/generation_config.h"
#include "engine/checkpoint/config/json_fields.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/gguf_model.h"
#include "engine/checkpoint/tokenizer/gguf_tokenizer.h"
#include "engine/checkpoint/tokenizer/llama2c_tokenizer.h"
#include "engine/checkpoint/tokenizer/sentencepiece_model.h"
#include "engine/checkpoint/tokenizer/tokenizer_json.h"
#include "engine/text/byte_tokenizer.h"

namespace triptych::checkpoint {
namespace {

constexpr size_t kMaxEndTokens = 64;
constexpr const char* kTemplateFile = "chat_template.jinja";
constexpr const char* kDefaultTemplate = "default";

// Adds eos_token_id of a config: a token or a list of tokens. False if it is absent or null.
bool AddEndTokens(const std::filesystem::path& file, std::vector<int32_t>& tokens) {
  std::optional<JsonFields> fields = ReadFieldsIfThere(file);
  const std::string field = "eos_token_id";
  if (!fields || !fields->Has(field)) return false;
  Json value = fields->Take(field, Json());
  if (value.is_null()) return false;
  if (!value.is_array()) value = Json::array({value});
  if (value.size() > kMaxEndTokens) fields->RefuseValue(field, value, "allowed: at most 64 tokens");
  for (const Json& token : value) {
    tokens.push_back(static_cast<int32_t>(
        fields->CheckedInt(field, token, {0, std::numeric_limits<int32_t>::max() - 1})));
  }
  return true;
}

struct Settings {
  EndTokens ends;
  bool begins = true;
};

Settings ReadSettings(const std::filesystem::path& directory) {
  Settings settings;
  if (std::optional<JsonFields> fields = ReadFieldsIfThere(directory / "tokenizer_config.json")) {
    Json end = fields->Has("eos_token") ? fields->Take("eos_token", Json()) : Json();
    if (end.is_object() && end.contains("content")) end = Json(end["content"]);
    if (end.is_string()) {
      settings.ends.text = end.get<std::string>();
    } else if (!end.is_null()) {
      fields->RefuseValue("eos_token", end, "allowed: a text, an object with content, null");
    }
    settings.begins = fields->Bool("add_bos_token", true);
  }
  // The end tokens of generation, or by default those of the model.
  if (!AddEndTokens(directory / kGenerationConfigFile, settings.ends.tokens)) {
    AddEndTokens(directory / "config.json", settings.ends.tokens);
  }
  return settings;
}

// Throws unless model_type is "triptych": only such a model's tokens are bytes without a tokenizer.
void RequireBytes(const std::filesystem::path& directory) {
  std::optional<JsonFields> config = ReadFieldsIfThere(directory / "config.json");
  if (!config) return;
  const Family& family = FamilyOf(*config);
  if (&family == &TriptychFamily()) return;
  throw LoadError(directory.string() + ": has no tokenizer, and its model_type is \"" +
                  family.model_type + "\"; supported: tokenizer.json, tokenizer.model");
}

// The tokenizer and the chat template of a GGUF file, as files of a directory.
std::map<std::string, std::string> FilesOf(const GgufFile& gguf) {
  std::map<std::string, std::string> files = GgufTokenizerFiles(gguf.metadata(), gguf.name());
  if (std::optional<std::string> chat = GgufChatTemplate(gguf)) {
    files.emplace(kTemplateFile, std::move(*chat));
  }
  for (const auto& [name, text] : files) {
    if (text.size() <= kMaxTokenizerBytes) continue;
    throw LoadError(gguf.name() + ", as " + name + ": is " + std::to_string(text.size()) +
                    " bytes; allowed: at most " + std::to_string(kMaxTokenizerBytes));
  }
  return files;
}

// The text of chat_template in tokenizer_config.json; absent if it is neither a text nor a list
// with a default.
std::optional<std::string> DefaultTemplate(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return std::nullopt;
  for (const Json& entry : value) {
    if (entry.is_object() && entry.value("name", Json()) == kDefaultTemplate &&
        entry.value("template", Json()).is_string()) {
      return entry["template"].get<std::string>();
    }
  }
  return std::nullopt;
}

}  // namespace

std::shared_ptr<const Tokenizer> LoadTokenizer(const std::filesystem::path& checkpoint) {
  if (IsGgufFile(checkpoint)) {
    const GgufFile file(checkpoint);
    return ParseGgufTokenizer(file.metadata(), file.name());
  }
  const std::filesystem::path json = checkpoint / "tokenizer.json";
  const std::filesystem::path model = checkpoint / "tokenizer.model";
  const std::filesystem::path llama2c = checkpoint / kLlama2cTokenizerFile;
  if (Exists(json)) {
    return ParseTokenizerJson(ReadText(json, kMaxTokenizerBytes), json.string(),
                              ReadSettings(checkpoint).ends);
  }
  if (Exists(model)) {
    const Settings settings = ReadSettings(checkpoint);
    return ParseSentencePieceModel(ReadText(model, kMaxTokenizerBytes), model.string(),
                                   settings.begins, settings.ends.tokens);
  }
  if (Exists(llama2c)) {
    return ParseLlama2cTokenizer(ReadText(llama2c, kMaxTokenizerBytes), llama2c.string());
  }
  RequireBytes(checkpoint);
  return std::make_shared<const ByteTokenizer>();
}

std::shared_ptr<const Tokenizer> LoadTokenizer(const OpenedCheckpoint& checkpoint) {
  if (!checkpoint.gguf) return LoadTokenizer(checkpoint.path);
  return ParseGgufTokenizer(checkpoint.gguf->metadata(), checkpoint.gguf->name());
}

std::map<std::string, std::string> TokenizerFiles(const std::filesystem::path& checkpoint) {
  if (IsGgufFile(checkpoint)) return FilesOf(GgufFile(checkpoint));
  std::map<std::string, std::string> files;
  for (const std::string name :
       {"tokenizer.json", "tokenizer.model", kLlama2cTokenizerFile, "tokenizer_config.json",
        kGenerationConfigFile, "special_tokens_map.json", kTemplateFile}) {
    const std::filesystem::path file = checkpoint / name;
    if (!Exists(file)) continue;
    files.emplace(name,
                  ReadText(file, name == kTemplateFile ? kMaxTemplateBytes : kMaxTokenizerBytes));
  }
  // A config of model_type "triptych" does not name end tokens.
  std::vector<int32_t> ends;
  const std::filesystem::path generation = checkpoint / kGenerationConfigFile;
  if (!AddEndTokens(generation, ends) && AddEndTokens(checkpoint / "config.json", ends)) {
    std::string& text = files.try_emplace(kGenerationConfigFile, "{}").first->second;
    text = WithEndTokens(ParseJson(text, generation.string()), ends);
  }
  return files;
}

OwnChatTemplate ReadChatTemplate(const OpenedCheckpoint& checkpoint) {
  OwnChatTemplate own;
  if (checkpoint.gguf) {
    own.text = GgufChatTemplate(*checkpoint.gguf);
    if (!own.text) own.text = GgufChatTemplate(*checkpoint.gguf, kDefaultTemplate);
    own.special_tokens = GgufSpecialTexts(checkpoint.gguf->metadata());
    return own;
  }
  const std::filesystem::path file = checkpoint.path / kTemplateFile;
  if (Exists(file)) own.text = ReadText(file, kMaxTemplateBytes);
  if (auto fields = ReadFieldsIfThere(checkpoint.path / "tokenizer_config.json")) {
    for (const char* const name : {"bos_token", "eos_token", "pad_token", "unk_token"}) {
      Json value = fields->Has(name) ? fields->Take(name, Json()) : Json();
      if (value.is_object() && value.contains("content")) value = Json(value["content"]);
      if (value.is_string()) own.special_tokens.emplace(name, value.get<std::string>());
    }
    if (!own.text && fields->Has("chat_template")) {
      own.text = DefaultTemplate(fields->Take("chat_template", Json()));
    }
  }
  const std::filesystem::path additional =
      checkpoint.path / "additional_chat_templates" / (std::string(kDefaultTemplate) + ".jinja");
  if (!own.text && Exists(additional)) own.text = ReadText(additional, kMaxTemplateBytes);
  return own;
}

void CheckVocabulary(const Tokenizer& tokenizer, const ModelConfig& config,
                     const std::string& source) {
  if (config.vocab_size >= tokenizer.vocab_size()) return;
  throw LoadError(source + ": vocab_size is " + std::to_string(config.vocab_size) +
                  "; its tokenizer needs at least " + std::to_string(tokenizer.vocab_size()));
}

}  // namespace triptych::checkpoint
