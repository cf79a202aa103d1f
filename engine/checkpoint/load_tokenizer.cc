#include "engine/checkpoint/load_tokenizer.h"

#include <limits>
#include <optional>
#include <utility>

#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/gguf_tokenizer.h"
#include "engine/checkpoint/json_fields.h"
#include "engine/checkpoint/llama2c_tokenizer.h"
#include "engine/checkpoint/sentencepiece_model.h"
#include "engine/checkpoint/tokenizer_json.h"
#include "engine/text/byte_tokenizer.h"

namespace triptych {
namespace {

constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;
constexpr size_t kMaxEndTokens = 64;

// The fields of a JSON file beside the tokenizer; none if there is no such file.
std::optional<JsonFields> FieldsOf(const std::filesystem::path& file) {
  if (!Exists(file)) return std::nullopt;
  return JsonFields(ParseJson(ReadText(file, kMaxConfigBytes), file.string()), file.string());
}

// eos_token_id of a config: absent, null, a token or a list of them.
bool AddEndTokens(const std::filesystem::path& file, std::vector<int32_t>& tokens) {
  std::optional<JsonFields> fields = FieldsOf(file);
  const std::string field = "eos_token_id";
  if (!fields || !fields->Has(field)) return false;
  Json value = fields->Take(field, Json());
  if (value.is_null()) return false;
  if (!value.is_array()) value = Json::array({value});
  if (value.size() > kMaxEndTokens) fields->RefuseValue(field, value, "allowed: at most 64 tokens");
  for (const Json& token : value) {
    tokens.push_back(static_cast<int32_t>(
        fields->CheckedInt(field, token, 0, std::numeric_limits<int32_t>::max() - 1)));
  }
  return true;
}

struct Settings {
  EndTokens ends;
  bool begins = true;
};

Settings ReadSettings(const std::filesystem::path& directory) {
  Settings settings;
  if (std::optional<JsonFields> fields = FieldsOf(directory / "tokenizer_config.json")) {
    Json end = fields->Has("eos_token") ? fields->Take("eos_token", Json()) : Json();
    if (end.is_object() && end.contains("content")) end = Json(end["content"]);
    if (end.is_string()) {
      settings.ends.text = end.get<std::string>();
    } else if (!end.is_null()) {
      fields->RefuseValue("eos_token", end, "allowed: a text, an object with content, null");
    }
    settings.begins = fields->Bool("add_bos_token", true);
  }
  // What a generation ends with, where it is said; what the model was made with otherwise.
  if (!AddEndTokens(directory / "generation_config.json", settings.ends.tokens)) {
    AddEndTokens(directory / "config.json", settings.ends.tokens);
  }
  return settings;
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
  return std::make_shared<const ByteTokenizer>();
}

std::map<std::string, std::string> TokenizerFiles(const std::filesystem::path& checkpoint) {
  if (IsGgufFile(checkpoint)) {
    throw LoadError(checkpoint.string() +
                    ": has its tokenizer inside, where no other checkpoint can take it from; "
                    "allowed: directories");
  }
  std::map<std::string, std::string> files;
  for (const char* name :
       {"tokenizer.json", "tokenizer.model", kLlama2cTokenizerFile, "tokenizer_config.json",
        "generation_config.json", "special_tokens_map.json", "chat_template.jinja"}) {
    const std::filesystem::path file = checkpoint / name;
    if (Exists(file)) files.emplace(name, ReadText(file, kMaxTokenizerBytes));
  }
  // A config in Triptych's own form says nothing of tokens.
  std::vector<int32_t> ends;
  if (!files.contains("generation_config.json") && AddEndTokens(checkpoint / "config.json", ends)) {
    files.emplace("generation_config.json", Json{{"eos_token_id", ends}}.dump() + "\n");
  }
  return files;
}

void CheckVocabulary(const Tokenizer& tokenizer, const ModelConfig& config,
                     const std::string& source) {
  if (config.vocab_size >= tokenizer.vocab_size()) return;
  throw LoadError(source + ": vocab_size is " + std::to_string(config.vocab_size) +
                  "; its tokenizer needs at least " + std::to_string(tokenizer.vocab_size()));
}

}  // namespace triptych
