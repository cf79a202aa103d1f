#include "engine/checkpoint/tokenizer/tokenizer_settings.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <utility>

#include "engine/base/json.h"
#include "engine/base/parse.h"
#include "engine/base/quoted.h"
#include "engine/checkpoint/config/generation_config.h"
#include "engine/checkpoint/config/json_fields.h"

namespace triptych::checkpoint {
namespace {

constexpr const char* kSettingsFile = "tokenizer_config.json";
constexpr const char* kDecoder = "added_tokens_decoder";
constexpr size_t kMaxEndTokens = 64;

// A class of transformers 4 that puts a begin token before texts by itself.
struct BeginningClass {
  std::string_view name;
  bool begins;             // the default of add_bos_token
  const char* begin_text;  // the default of bos_token
};
constexpr std::array kBeginningClasses = {
    BeginningClass{"CodeLlamaTokenizer", true, "<s>"},
    BeginningClass{"CohereTokenizer", true, "<BOS_TOKEN>"},
    BeginningClass{"GPTNeoXTokenizer", false, "<|endoftext|>"},
    BeginningClass{"GemmaTokenizer", true, "<bos>"},
    BeginningClass{"LlamaTokenizer", true, "<s>"},
};

constexpr std::string_view kTurnEnds[] = {
    "</s>",       "<EOT>",           "<end_of_turn>", "<end_of_utterance>",
    "<eos>",      "<|end_of_text|>", "<|endoftext|>", "<|end|>",
    "<|eom_id|>", "<|eot_id|>",      "<|im_end|>",    "<｜end▁of▁sentence｜>",
    "[EOS]",      "[EOT]",           "_<EOT>",
};

// A token's text: a text, or an object with content. None if it is absent or null.
std::optional<std::string> TakeTokenText(JsonFields& fields, const std::string& field) {
  if (!fields.Has(field)) return std::nullopt;
  Json token = fields.Take(field, Json());
  if (token.is_object() && token.contains("content")) token = Json(token["content"]);
  if (token.is_null()) return std::nullopt;
  if (!token.is_string()) {
    fields.RefuseValue(field, token, "allowed: a text, an object with content, null");
  }
  return token.get<std::string>();
}

std::optional<bool> TakeFlag(JsonFields& fields, const std::string& field) {
  if (!fields.Has(field) || fields.left_over().at(field).is_null()) return std::nullopt;
  return fields.Bool(field, false);
}

void TakeBegin(JsonFields& fields, TokenizerSettings& settings) {
  if (fields.Has("add_bos_token")) {  // null: false
    settings.begins = TakeFlag(fields, "add_bos_token").value_or(false);
  }
  Json name = fields.Take("tokenizer_class", "");
  std::string text = name.is_string() ? name.get<std::string>() : "";
  if (text.ends_with("Fast")) text.resize(text.size() - 4);
  const auto* const known =
      std::find_if(kBeginningClasses.begin(), kBeginningClasses.end(),
                   [&](const BeginningClass& each) { return each.name == text; });
  if (known == kBeginningClasses.end()) return;
  settings.class_begins = known->begins;
  if (!settings.begin_text) settings.begin_text = known->begin_text;
}

// The texts that special_tokens_map.json and tokenizer_config.json name as special.
void AddSpecialTexts(const JsonFields& fields, std::set<std::string>& texts) {
  const auto add = [&](const Json& token) {
    if (token.is_string()) texts.insert(token.get<std::string>());
    if (token.is_object() && token.contains("content") && token["content"].is_string()) {
      texts.insert(token["content"].get<std::string>());
    }
  };
  for (const auto& [field, value] : fields.left_over().items()) {
    if (!field.ends_with("_token") && field != "additional_special_tokens") continue;
    if (!value.is_array()) add(value);
    if (value.is_array()) std::for_each(value.begin(), value.end(), add);
  }
}

// Tokens of added_tokens_decoder, by id.
std::map<int32_t, AddedToken> TakeAddedTokens(JsonFields& fields) {
  const std::string field = kDecoder;
  const Json list = fields.Take(field, Json::object());
  if (!list.is_object()) fields.RefuseValue(field, list, "allowed: an object");
  std::map<int32_t, AddedToken> added;
  for (const auto& [id, value] : list.items()) {
    const auto token = ParseNumber<int32_t>(id, 0, std::numeric_limits<int32_t>::max() - 1);
    if (!token) fields.Refuse(field, "of " + Quoted(id), "allowed: token ids");
    JsonFields of_token = fields.Inside(field + "[" + id + "]", value);
    AddedToken read{.token = *token,
                    .text = of_token.Text("content"),
                    .special = of_token.Bool("special", false),
                    .left_strip = of_token.Bool("lstrip", false),
                    .right_strip = of_token.Bool("rstrip", false),
                    .single_word = of_token.Bool("single_word", false)};
    added.emplace(*token, std::move(read));
  }
  return added;
}

// Tokens of added_tokens.json, by id.
std::map<int32_t, AddedToken> TakeAddedTokens(const JsonFields& fields,
                                              const std::set<std::string>& special) {
  std::map<int32_t, AddedToken> added;
  for (const auto& [text, id] : fields.left_over().items()) {
    const auto token = static_cast<int32_t>(
        fields.CheckedInt(Printable(text), id, {0, std::numeric_limits<int32_t>::max() - 1}));
    AddedToken read{.token = token, .text = text, .special = special.contains(text)};
    if (!added.emplace(token, std::move(read)).second) {
      fields.RefuseValue(Printable(text), id, "another token has that id too");
    }
  }
  return added;
}

}  // namespace

bool EndsTurns(std::string_view text) {
  return std::find(std::begin(kTurnEnds), std::end(kTurnEnds), text) != std::end(kTurnEnds);
}

bool OnlyEndsTurns(std::string_view text) { return text != "</s>" && EndsTurns(text); }

std::vector<int32_t> ReadEndTokens(const std::filesystem::path& file, TokenizerNotes& notes) {
  std::optional<JsonFields> fields = ReadFieldsIfThere(file);
  const std::string field = "eos_token_id";
  std::vector<int32_t> tokens;
  if (!fields || !fields->Has(field)) return tokens;
  Json value = fields->Take(field, Json());
  if (value.is_null()) return tokens;
  if (!value.is_array()) value = Json::array({value});
  if (value.size() > kMaxEndTokens) fields->RefuseValue(field, value, "allowed: at most 64 tokens");
  for (const Json& token : value) {
    const std::optional<int64_t> id = WholeNumber(token);
    const bool is_number = id || token.is_number_integer();
    const bool fits = id && *id >= 0 && *id < std::numeric_limits<int32_t>::max();
    if (!fits && (is_number || token.is_null())) {
      notes.warnings.push_back(file.filename().string() + ": eos_token_id " + ShownJson(token) +
                               " is no token, and is passed over");
      continue;
    }
    if (!fits) fields->RefuseValue(field, token, "allowed: token ids, null");
    tokens.push_back(static_cast<int32_t>(*id));
  }
  return tokens;
}

TokenizerSettings ParseTokenizerSettings(JsonFields config, std::optional<JsonFields> map,
                                         std::optional<JsonFields> added_tokens) {
  TokenizerSettings settings;
  std::set<std::string> special;
  AddSpecialTexts(config, special);
  settings.end_text = TakeTokenText(config, "eos_token");
  settings.begin_text = TakeTokenText(config, "bos_token");
  settings.adds_space = TakeFlag(config, "add_prefix_space");
  std::map<int32_t, AddedToken> added;
  if (config.Has(kDecoder)) added = TakeAddedTokens(config);
  if (map) {
    AddSpecialTexts(*map, special);
    if (auto end = TakeTokenText(*map, "eos_token")) settings.end_text = std::move(end);
    if (auto begin = TakeTokenText(*map, "bos_token")) settings.begin_text = std::move(begin);
  }
  if (added_tokens) added.merge(TakeAddedTokens(*added_tokens, special));
  for (auto& [id, token] : added) settings.added.push_back(std::move(token));
  TakeBegin(config, settings);
  return settings;
}

TokenizerSettings ReadTokenizerSettings(const std::filesystem::path& directory,
                                        TokenizerNotes& notes) {
  std::optional<JsonFields> fields = ReadFieldsIfThere(directory / kSettingsFile);
  if (!fields) fields = JsonFields(Json::object(), (directory / kSettingsFile).string());
  const bool decides = fields->Has(kDecoder);  // the older files are not even opened
  TokenizerSettings settings = ParseTokenizerSettings(
      *std::move(fields),
      decides ? std::nullopt : ReadFieldsIfThere(directory / "special_tokens_map.json"),
      decides ? std::nullopt : ReadFieldsIfThere(directory / "added_tokens.json"));
  // The end tokens of generation, or by default those of the model.
  for (const char* file : {kGenerationConfigFile, "config.json"}) {
    settings.end_tokens = ReadEndTokens(directory / file, notes);
    settings.end_tokens_file = file;
    if (!settings.end_tokens.empty()) break;
  }
  return settings;
}

}  // namespace triptych::checkpoint
