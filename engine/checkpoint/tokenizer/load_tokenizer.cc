#include "engine/checkpoint/tokenizer/load_tokenizer.h"

#include <optional>
#include <utility>

#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/checkpoint/config/families.h"
#include "engine/checkpoint/config/family.h"
#include "engine/checkpoint/config/generation_config.h"
#include "engine/checkpoint/config/json_fields.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/tokenizer/chat_templates.h"
#include "engine/checkpoint/tokenizer/gguf_tokenizer.h"
#include "engine/checkpoint/tokenizer/llama2c_tokenizer.h"
#include "engine/checkpoint/tokenizer/sentencepiece_model.h"
#include "engine/checkpoint/tokenizer/tokenizer_json.h"
#include "engine/text/byte_tokenizer.h"

namespace triptych::checkpoint {
namespace {

std::shared_ptr<const Tokenizer> LoadGgufTokenizer(const GgufFile& file, TokenizerNotes* notes) {
  if (notes != nullptr) notes->file = std::filesystem::path(file.name()).filename().string();
  return ParseGgufTokenizer(file.metadata(), file.name(), notes);
}

// Notes for a form of tokenizer whose begin and end tokens are always the same.
void NoteFixed(const Tokenizer& tokenizer, TokenizerNotes& notes) {
  for (const int32_t token : tokenizer.end_tokens()) notes.ends.emplace(token, notes.file);
  notes.begin = notes.file;
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

// The tokenizer and the chat templates of a GGUF file, as files of a directory.
std::map<std::string, std::string> FilesOf(const GgufFile& gguf) {
  std::map<std::string, std::string> files = GgufTokenizerFiles(gguf.metadata(), gguf.name());
  files.merge(ChatTemplateFiles(gguf));
  for (const auto& [name, text] : files) {
    if (text.size() <= kMaxTokenizerBytes) continue;
    throw LoadError(gguf.name() + ", as " + name + ": is " + std::to_string(text.size()) +
                    " bytes; allowed: at most " + std::to_string(kMaxTokenizerBytes));
  }
  return files;
}

}  // namespace

std::shared_ptr<const Tokenizer> LoadTokenizer(const std::filesystem::path& checkpoint,
                                               TokenizerNotes* notes) {
  if (IsGgufFile(checkpoint)) {
    const GgufFile file(checkpoint);
    return LoadGgufTokenizer(file, notes);
  }
  TokenizerNotes unread;
  TokenizerNotes& all = notes != nullptr ? *notes : unread;
  const auto text_of = [&](const std::filesystem::path& file) {
    all.file = file.filename().string();
    return ReadText(file, kMaxTokenizerBytes);
  };
  const std::filesystem::path json = checkpoint / "tokenizer.json";
  const std::filesystem::path model = checkpoint / "tokenizer.model";
  const std::filesystem::path llama2c = checkpoint / kLlama2cTokenizerFile;
  if (Exists(json)) {
    return ParseTokenizerJson(text_of(json), json.string(), ReadTokenizerSettings(checkpoint, all),
                              &all);
  }
  if (Exists(model)) {
    return ParseSentencePieceModel(text_of(model), model.string(),
                                   ReadTokenizerSettings(checkpoint, all), &all);
  }
  if (Exists(llama2c)) {
    auto tokenizer = ParseLlama2cTokenizer(text_of(llama2c), llama2c.string());
    NoteFixed(*tokenizer, all);
    return tokenizer;
  }
  RequireBytes(checkpoint);
  auto bytes = std::make_shared<const ByteTokenizer>();
  all.file = "no tokenizer file";
  NoteFixed(*bytes, all);
  return bytes;
}

std::shared_ptr<const Tokenizer> LoadTokenizer(const OpenedCheckpoint& checkpoint,
                                               TokenizerNotes* notes) {
  if (!checkpoint.gguf) return LoadTokenizer(checkpoint.path, notes);
  return LoadGgufTokenizer(*checkpoint.gguf, notes);
}

std::map<std::string, std::string> TokenizerFiles(const std::filesystem::path& checkpoint) {
  if (IsGgufFile(checkpoint)) return FilesOf(GgufFile(checkpoint));
  std::map<std::string, std::string> files;
  for (const std::string name :
       {"tokenizer.json", "tokenizer.model", kLlama2cTokenizerFile, "tokenizer_config.json",
        kGenerationConfigFile, "special_tokens_map.json", "added_tokens.json"}) {
    const std::filesystem::path file = checkpoint / name;
    if (Exists(file)) files.emplace(name, ReadText(file, kMaxTokenizerBytes));
  }
  files.merge(ChatTemplateFiles(checkpoint));
  // A config of model_type "triptych" does not name end tokens.
  TokenizerNotes unread;
  const std::filesystem::path generation = checkpoint / kGenerationConfigFile;
  if (ReadEndTokens(generation, unread).empty()) {
    const std::vector<int32_t> ends = ReadEndTokens(checkpoint / "config.json", unread);
    if (!ends.empty()) {
      std::string& text = files.try_emplace(kGenerationConfigFile, "{}").first->second;
      text = WithEndTokens(ParseJson(text, generation.string()), ends);
    }
  }
  return files;
}

void CheckVocabulary(const Tokenizer& tokenizer, const ModelConfig& config,
                     const std::string& source) {
  const auto check = [&](int32_t token, const char* what) {
    if (token < config.vocab_size) return;
    throw LoadError(source + ": vocab_size is " + std::to_string(config.vocab_size) +
                    "; its tokenizer needs at least " + std::to_string(token + 1) + ", as token " +
                    std::to_string(token) + " " + what + " texts");
  };
  if (const auto begin = tokenizer.begin_token()) check(*begin, "begins");
  for (const int32_t end : tokenizer.end_tokens()) check(end, "ends");
}

}  // namespace triptych::checkpoint
