#include "engine/checkpoint/tokenizer/gguf_tokenizer.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/keyed_hash.h"
#include "engine/base/quoted.h"
#include "engine/checkpoint/config/generation_config.h"
#include "engine/checkpoint/config/json_fields.h"
#include "engine/checkpoint/tokenizer/scored_pieces.h"
#include "engine/checkpoint/tokenizer/sentencepiece_model.h"
#include "engine/checkpoint/tokenizer/tokenizer_json.h"

namespace triptych::checkpoint {
namespace {

constexpr const char* kModel = "tokenizer.ggml.model";
constexpr const char* kPre = "tokenizer.ggml.pre";
constexpr const char* kTokens = "tokenizer.ggml.tokens";
constexpr const char* kTypes = "tokenizer.ggml.token_type";
constexpr const char* kScores = "tokenizer.ggml.scores";
constexpr const char* kMerges = "tokenizer.ggml.merges";
constexpr const char* kBeginKey = "tokenizer.ggml.bos_token_id";
constexpr const char* kEndKey = "tokenizer.ggml.eos_token_id";
// Further end tokens: of a turn and of a message.
constexpr const char* kOtherEnds[] = {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
constexpr const char* kAddBegin = "tokenizer.ggml.add_bos_token";
constexpr const char* kAddSpace = "tokenizer.ggml.add_space_prefix";
constexpr const char* kRemoveSpaces = "tokenizer.ggml.remove_extra_whitespaces";

constexpr auto kMaxTokens = static_cast<int64_t>(kMaxScoredPieces);

// The pre-tokenizers of published byte-level models, as in their tokenizer.json.
struct PreTokenizer {
  const char* name;                          // in GGUF files
  const char* pattern = nullptr;             // null: GPT-2's
  bool cuts_digits = false;                  // separates digits, before the pattern
  std::span<const char* const> before = {};  // patterns that cut a text before the pattern does
  bool normalizes = false;                   // to NFC
  bool ignores_merges = false;               // for a word that is a token
  bool begins = false;                       // default of add_bos_token
};
constexpr const char* kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kBeforeDeepseekV3Pattern[] = {R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+"};
// DeepSeek's first models: letters that have cases (of the Unicode of their day), punctuation,
// spaces that end a line, and Chinese, Japanese and Korean are cut out one after another, then
// digits.
constexpr const char* kDigitPattern = R"(\p{N})";
constexpr const char* kBeforeDeepseekLlmPattern[] = {
    R"([\r\n])",
    R"(\s?[)"
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-Ֆ"
    "Ⴀ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅ"
    "ὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼ"
    "ℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤ"
    "Ⳬ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ"
    "𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
    "]+",
    R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)", R"(\s+$)", "[一-龥ࠀ-一가-퟿]+"};
constexpr const char* kBeforeDeepseekCoderPattern[] = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)",
                                                       "[一-龥ࠀ-一가-퟿]+"};
// Letters and marks besides those of Han, which stay together: first capitals, then small letters.
// The published pattern intersects classes, which not every engine can do. All categories except
// some are the same.
constexpr const char* kKimiK2Pattern =
    R"(\p{Han}+|[^\r\n\p{L}\p{N}]?[^\p{Ll}\p{N}\p{P}\p{S}\p{Z}\p{C}\p{Han}]*)"
    R"([^\p{Lu}\p{Lt}\p{N}\p{P}\p{S}\p{Z}\p{C}\p{Han}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[^\p{Ll}\p{N}\p{P}\p{S}\p{Z}\p{C}\p{Han}]+)"
    R"([^\p{Lu}\p{Lt}\p{N}\p{P}\p{S}\p{Z}\p{C}\p{Han}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr PreTokenizer kPreTokenizers[] = {
    {.name = "gpt-2"},
    {.name = "llama-bpe", .pattern = kLlama3Pattern, .ignores_merges = true, .begins = true},
    {.name = "llama3", .pattern = kLlama3Pattern, .ignores_merges = true, .begins = true},
    {.name = "llama-v3", .pattern = kLlama3Pattern, .ignores_merges = true, .begins = true},
    {.name = "smaug-bpe", .pattern = kLlama3Pattern},
    {.name = "qwen2", .pattern = kQwen2Pattern, .normalizes = true},
    {.name = "deepseek-r1-qwen", .pattern = kQwen2Pattern, .normalizes = true, .begins = true},
    {.name = "megrez", .pattern = kQwen2Pattern, .normalizes = true},
    {.name = "smollm", .cuts_digits = true},
    {.name = "starcoder", .cuts_digits = true},
    {.name = "refact", .cuts_digits = true},
    {.name = "command-r", .cuts_digits = true, .normalizes = true},
    {.name = "dbrx", .pattern = kLlama3Pattern},
    {.name = "glm4", .pattern = kLlama3Pattern},
    {.name = "olmo", .normalizes = true},
    {.name = "deepseek-llm",
     .pattern = kDigitPattern,
     .before = kBeforeDeepseekLlmPattern,
     .begins = true},
    {.name = "deepseek-coder",
     .pattern = kDigitPattern,
     .before = kBeforeDeepseekCoderPattern,
     .begins = true},
    {.name = "kimi-k2", .pattern = kKimiK2Pattern},
    {.name = "deepseek-v3",
     .pattern = R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|)"
                R"([^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)"
                R"(\s*[\r\n]+|\s+(?!\S)|\s+)",
     .before = kBeforeDeepseekV3Pattern,
     .begins = true},
    {.name = "tekken",
     .pattern = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
                R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
                R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     .ignores_merges = true,
     .begins = true},
};

// The keys of the tokenizer, except those that do not change tokens.
Json KeysOf(const Json& metadata) {
  Json own = Json::object();
  for (const auto& [key, value] : metadata.items()) {
    const bool names_token = key.ends_with("_token_id");
    const bool used =
        key == kBeginKey || key == kEndKey || key == kOtherEnds[0] || key == kOtherEnds[1];
    if (!key.starts_with("tokenizer.ggml.") || (names_token && !used)) continue;
    if (key == "tokenizer.ggml.add_eos_token" || key == "tokenizer.ggml.add_sep_token") continue;
    if (key == "tokenizer.ggml.token_type_count") continue;
    own.emplace(key, value);
  }
  return own;
}

std::string Indexed(const char* key, size_t index) {
  return std::string(key) + "[" + std::to_string(index) + "]";
}

// A list of `least` to `most` values.
Json TakeList(JsonFields& fields, const char* key, int64_t least, int64_t most) {
  Json list = fields.Take(key, nullptr);
  if (!list.is_array() || std::ssize(list) < least || std::ssize(list) > most) {
    const std::string shown =
        list.is_array() ? "a list of " + std::to_string(list.size()) : ShownJson(list);
    fields.Refuse(key, shown,
                  "allowed: a list of " + std::to_string(least) +
                      (least == most ? "" : " to " + std::to_string(most)));
  }
  return list;
}

ScoredPiece::Kind TakeKind(const JsonFields& fields, size_t token, const Json& type) {
  switch (fields.CheckedInt(Indexed(kTypes, token), type, {1, 6})) {
    case 2:
      return ScoredPiece::kUnknown;
    case 3:
      return ScoredPiece::kControl;
    case 4:
      return ScoredPiece::kUserDefined;
    case 5:
      return ScoredPiece::kUnused;
    case 6:
      return ScoredPiece::kByte;
    default:
      return ScoredPiece::kNormal;
  }
}

std::vector<ScoredPiece> TakePieces(JsonFields& fields) {
  const Json tokens = TakeList(fields, kTokens, 1, kMaxTokens);
  const Json types = TakeList(fields, kTypes, std::ssize(tokens), std::ssize(tokens));
  std::vector<ScoredPiece> pieces(tokens.size());
  std::unordered_set<std::string_view, KeyedHash> known;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!tokens[i].is_string()) {
      fields.RefuseValue(Indexed(kTokens, i), tokens[i], "allowed: a text");
    }
    const auto& text = tokens[i].get_ref<const std::string&>();
    if (!text.empty() && !known.insert(text).second) {
      fields.RefuseValue(Indexed(kTokens, i), tokens[i], "another token is that too");
    }
    pieces[i].text = text;
    pieces[i].kind = TakeKind(fields, i, types[i]);
  }
  return pieces;
}

std::optional<int32_t> TakeToken(JsonFields& fields, const char* key, size_t tokens) {
  if (!fields.Has(key)) return std::nullopt;
  return static_cast<int32_t>(fields.Int(key, {0, static_cast<int64_t>(tokens) - 1}));
}

// The tokens that the keys name, and those that EndsTurns: a file names at most three, and the same
// model's directory may have more.
std::vector<int32_t> TakeEnds(JsonFields& fields, const std::vector<ScoredPiece>& pieces,
                              TokenizerNotes& notes) {
  std::vector<int32_t> ends;
  const auto add = [&](int32_t token, const char* from) {
    if (std::find(ends.begin(), ends.end(), token) != ends.end()) return;
    ends.push_back(token);
    notes.ends.emplace(token, from);
  };
  for (const char* key : {kEndKey, kOtherEnds[0], kOtherEnds[1]}) {
    if (!fields.Has(key)) continue;
    const Json value = fields.Take(key, nullptr);
    if (!value.is_number_integer()) fields.RefuseValue(key, value, "allowed: a token id");
    const std::optional<int64_t> token = WholeNumber(value);
    if (token && *token >= 0 && *token < std::ssize(pieces)) {
      add(static_cast<int32_t>(*token), key);
    } else {
      notes.warnings.push_back(std::string(key) + " " + ShownJson(value) +
                               " is no token, and is passed over");
    }
  }
  for (size_t token = 0; token < pieces.size(); ++token) {
    const auto& [text, score, kind] = pieces[token];
    const bool whole = kind != ScoredPiece::kByte && kind != ScoredPiece::kUnused;
    if (whole && EndsTurns(text)) add(static_cast<int32_t>(token), "its text");
  }
  if (ends.empty()) fields.RefuseMissing(kEndKey);
  return ends;
}

// The token before texts, if there is one.
std::optional<int32_t> TakeBegin(JsonFields& fields, size_t tokens, bool otherwise,
                                 TokenizerNotes& notes) {
  if (!fields.Bool(kAddBegin, otherwise)) {
    fields.Ignore(kBeginKey);  // whatever it is
    return std::nullopt;
  }
  const std::optional<int32_t> begin = TakeToken(fields, kBeginKey, tokens);
  if (!begin) fields.Refuse(kBeginKey, "missing", "texts begin with it");
  notes.begin = kBeginKey;
  return begin;
}

void RequireFalse(JsonFields& fields, const char* key) {
  if (fields.Bool(key, false)) fields.Refuse(key, "true", "supported: false");
}

ScoredVocabulary TakeScored(JsonFields& fields, TokenizerNotes& notes) {
  ScoredVocabulary vocabulary{.pieces = TakePieces(fields), .space = kMetaspace};
  std::vector<ScoredPiece>& pieces = vocabulary.pieces;
  const auto count = std::ssize(pieces);
  const Json scores = TakeList(fields, kScores, count, count);
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (!scores[i].is_number()) {
      fields.RefuseValue(Indexed(kScores, i), scores[i], "allowed: a number");
    }
    pieces[i].score = scores[i].get<float>();
  }
  fields.Take(kPre, "");     // unused by SentencePiece
  fields.Take(kMerges, "");  // scores give the merges
  RequireFalse(fields, kRemoveSpaces);
  vocabulary.adds_space = fields.Bool(kAddSpace, true);
  vocabulary.begin = TakeBegin(fields, pieces.size(), true, notes);
  vocabulary.ends = TakeEnds(fields, pieces, notes);
  MakeEndsControl(vocabulary);
  fields.RefuseLeftOver();
  return vocabulary;
}

const PreTokenizer& TakePreTokenizer(JsonFields& fields) {
  const std::string name = fields.Text(kPre);
  std::string allowed = "supported:";
  for (const PreTokenizer& known : kPreTokenizers) {
    if (name == known.name) return known;
    allowed += (allowed.back() == ':' ? " \"" : ", \"") + std::string(known.name) + '"';
  }
  fields.Refuse(kPre, Quoted(name), allowed);
}

// A byte-level tokenizer, as published models have it.
struct ByteLevel {
  Json json;  // of tokenizer.json
  TokenizerSettings settings;
};

ByteLevel TakeByteLevel(JsonFields& fields, TokenizerNotes& notes) {
  const PreTokenizer& pre = TakePreTokenizer(fields);
  const std::vector<ScoredPiece> pieces = TakePieces(fields);
  Json vocab = Json::object(), added = Json::array();
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto& [text, score, kind] = pieces[i];
    switch (kind) {
      case ScoredPiece::kNormal:
        vocab.emplace(text, i);
        break;
      case ScoredPiece::kUnknown:
      case ScoredPiece::kControl:
      case ScoredPiece::kUserDefined:
        added.push_back({{"id", i},
                         {"content", text},
                         {"special", kind != ScoredPiece::kUserDefined},
                         {"normalized", false}});
        break;
      case ScoredPiece::kUnused:
        break;
      case ScoredPiece::kByte:
        fields.Refuse(Indexed(kTypes, i), "6", "allowed with \"gpt2\": 1 to 5");
    }
  }
  Json cuts = Json::array();
  if (pre.cuts_digits) cuts.push_back({{"type", "Digits"}, {"individual_digits", true}});
  const auto cut_by = [&](const char* pattern) {
    cuts.push_back({{"type", "Split"},
                    {"pattern", {{"Regex", pattern}}},
                    {"behavior", "Isolated"},
                    {"invert", false}});
  };
  for (const char* pattern : pre.before) cut_by(pattern);
  if (pre.pattern != nullptr) cut_by(pre.pattern);
  cuts.push_back(
      {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", pre.pattern == nullptr}});
  Json json = {{"added_tokens", std::move(added)},
               {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", std::move(cuts)}}},
               {"decoder", {{"type", "ByteLevel"}}},
               {"model",
                {{"type", "BPE"},
                 {"vocab", std::move(vocab)},
                 {"merges", fields.Take(kMerges, nullptr)},
                 {"ignore_merges", pre.ignores_merges}}}};
  if (pre.normalizes) json["normalizer"] = {{"type", "NFC"}};
  if (const auto begin = TakeBegin(fields, pieces.size(), pre.begins, notes)) {
    const std::string& text = pieces[*begin].text;
    const Json first = {{"SpecialToken", {{"id", text}}}};
    const Json then = {{"Sequence", {{"id", "A"}}}};
    json["post_processor"] = {{"type", "TemplateProcessing"},
                              {"single", Json::array({first, then})}};
  }
  TokenizerSettings settings{.end_tokens = TakeEnds(fields, pieces, notes)};
  RequireFalse(fields, kRemoveSpaces);
  RequireFalse(fields, kAddSpace);
  fields.Take(kScores, "");  // merges give the order
  fields.RefuseLeftOver();
  return {.json = std::move(json), .settings = std::move(settings)};
}

std::variant<ScoredVocabulary, ByteLevel> TakeTokenizer(const Json& metadata,
                                                        const std::string& source,
                                                        TokenizerNotes& notes) {
  JsonFields fields(KeysOf(metadata), source);
  const std::string model = fields.Text(kModel);
  if (model == "llama") return TakeScored(fields, notes);
  if (model == "gpt2") return TakeByteLevel(fields, notes);
  fields.Refuse(kModel, Quoted(model), "supported: \"llama\", \"gpt2\"");
}

// The next two functions throw if their result cannot be read back. The second also throws if other
// tokens would begin or end texts.

std::string ToTokenizerJson(const ByteLevel& byte_level, const std::string& source) {
  std::string json = byte_level.json.dump();
  ParseTokenizerJson(json, source + ", as tokenizer.json", byte_level.settings);
  return json;
}

std::string ToTokenizerModel(const ScoredVocabulary& vocabulary, const std::string& source) {
  std::string model = WriteSentencePieceModel(vocabulary);
  const std::string as = source + ", as tokenizer.model";
  const std::shared_ptr<const Tokenizer> read = ParseSentencePieceModel(
      model, as, {.end_tokens = vocabulary.ends, .begins = vocabulary.begin.has_value()});
  const std::span<const int32_t> ends = read->end_tokens();
  if (read->begin_token() != vocabulary.begin ||
      !std::equal(ends.begin(), ends.end(), vocabulary.ends.begin(), vocabulary.ends.end())) {
    throw LoadError(as + ": other tokens would begin and end texts; supported: control tokens");
  }
  return model;
}

}  // namespace

std::shared_ptr<const Tokenizer> ParseGgufTokenizer(const Json& metadata, const std::string& source,
                                                    TokenizerNotes* notes) {
  TokenizerNotes unread;
  auto taken = TakeTokenizer(metadata, source, notes != nullptr ? *notes : unread);
  if (auto* const scored = std::get_if<ScoredVocabulary>(&taken)) {
    return MakeScoredTokenizer(std::move(*scored), source);
  }
  auto& [json, settings] = std::get<ByteLevel>(taken);
  return MakeJsonTokenizer(std::move(json), source + ": tokenizer.ggml", settings);
}

std::map<std::string, std::string> GgufTokenizerFiles(const Json& metadata,
                                                      const std::string& source) {
  TokenizerNotes unread;
  const auto taken = TakeTokenizer(metadata, source, unread);
  std::map<std::string, std::string> files;
  std::vector<int32_t> ends;
  if (const auto* const scored = std::get_if<ScoredVocabulary>(&taken)) {
    files["tokenizer.model"] = ToTokenizerModel(*scored, source);
    files["tokenizer_config.json"] =
        Json{{"add_bos_token", scored->begin.has_value()}}.dump() + "\n";
    ends = scored->ends;
  } else {
    const auto& byte_level = std::get<ByteLevel>(taken);
    files["tokenizer.json"] = ToTokenizerJson(byte_level, source);
    ends = byte_level.settings.end_tokens;
  }
  files[kGenerationConfigFile] = WithEndTokens(Json::object(), ends);
  return files;
}

std::map<std::string, std::string> GgufSpecialTexts(const Json& metadata) {
  std::map<std::string, std::string> texts;
  const auto tokens = metadata.find(kTokens);
  if (tokens == metadata.end() || !tokens->is_array()) return texts;
  for (const auto& [name, key] : {std::pair{"bos_token", kBeginKey}, {"eos_token", kEndKey}}) {
    const auto id = metadata.find(key);
    if (id == metadata.end() || !id->is_number_unsigned()) continue;
    const auto index = id->get<size_t>();
    if (index < tokens->size() && (*tokens)[index].is_string()) {
      texts.emplace(name, (*tokens)[index].get<std::string>());
    }
  }
  return texts;
}

}  // namespace triptych::checkpoint
