#include "engine/checkpoint/tokenizer/tokenizer_json.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "engine/base/keyed_hash.h"
#include "engine/base/quoted.h"
#include "engine/base/replace_all.h"
#include "engine/base/utf8.h"
#include "engine/checkpoint/config/json_fields.h"
#include "engine/checkpoint/tokenizer/scored_pieces.h"
#include "engine/text/bpe_tokenizer.h"

namespace triptych::checkpoint {
namespace {

// For vocabularies of some 200,000 with their merges.
constexpr size_t kMaxValues = size_t{1} << 22;
constexpr size_t kMaxTokenizerJsonPieceBytes = 4096;
constexpr size_t kMaxSteps = 32;
// What GPT-2's byte-level pre-tokenizer cuts at, unless it is told not to.
constexpr char kByteLevelPattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// The code point that stands for each byte in byte-level vocabularies: those of Latin-1 that are
// printed stand for themselves, the others, in order, are from U+0100 on.
std::unordered_map<std::string, char> MakeByteLevelAlphabet() {
  std::unordered_map<std::string, char> bytes;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printed = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    const int code_point = printed ? byte : next++;
    std::string character;
    if (code_point < 0x80) {
      character = static_cast<char>(code_point);
    } else {
      character = {static_cast<char>(0xC0 | code_point >> 6),
                   static_cast<char>(0x80 | (code_point & 0x3F))};
    }
    bytes.emplace(character, static_cast<char>(byte));
  }
  return bytes;
}

// The bytes that a piece of a byte-level vocabulary stands for; none if it is not of its alphabet.
std::optional<std::string> ByteLevelBytes(std::string_view piece) {
  static const std::unordered_map<std::string, char> alphabet = MakeByteLevelAlphabet();
  std::string bytes;
  while (!piece.empty()) {
    const size_t length = FirstUtf8Piece(piece).length;
    const auto it = alphabet.find(std::string(piece.substr(0, length)));
    if (it == alphabet.end()) return std::nullopt;
    bytes += it->second;
    piece.remove_prefix(length);
  }
  return bytes;
}

// How tokens become bytes again.
struct Decoding {
  struct Replacement {
    std::string what;
    std::string by;
  };

  bool byte_level = false;
  bool byte_fallback = false;
  std::vector<Replacement> replacements;
  bool drops_leading_space = false;

  std::string Bytes(const std::string& piece) const {
    if (byte_level) return ByteLevelBytes(piece).value_or(piece);
    if (byte_fallback) {
      if (const std::optional<char> byte = FallbackByte(piece)) return std::string(1, *byte);
    }
    std::string bytes = piece;
    for (const Replacement& it : replacements) bytes = ReplaceAll(bytes, it.what, it.by);
    return bytes;
  }
};

class Parser {
 public:
  Parser(Json json, const std::string& source, const EndTokens& ends)
      : source_(source), ends_(ends), root_(std::move(json), source) {}

  std::shared_ptr<const Tokenizer> Parse() {
    root_.Take("version", "");
    // How a batch is made for training: no text that is served is cut or filled up.
    root_.Take("truncation", "");
    root_.Take("padding", "");
    ParseNormalizer(Optional(root_, "normalizer"), source_ + ": normalizer");
    ParsePreTokenizer(Optional(root_, "pre_tokenizer"), source_ + ": pre_tokenizer");
    ParseDecoder(Optional(root_, "decoder"), source_ + ": decoder");
    if (byte_level_ != decoding_.byte_level) {
      throw LoadError(source_ +
                      ": decoder and pre_tokenizer differ; supported: ByteLevel in both " +
                      "or in neither");
    }
    Json added = root_.Take("added_tokens", Json::array());
    ParseModel(root_.Take("model", nullptr));
    ParseAddedTokens(added);
    FillTokens();
    ParsePostProcessor(Optional(root_, "post_processor"), source_ + ": post_processor");
    root_.RefuseLeftOver();
    AddEnds();
    try {
      return std::make_shared<const BpeTokenizer>(std::move(parts_));
    } catch (const std::runtime_error& e) {  // EncodeError, or ICU has no data
      throw LoadError(source_ + ": added_tokens cannot be normalized: " + e.what());
    }
  }

 private:
  // Null if it is absent.
  static Json Optional(JsonFields& fields, const std::string& field) {
    return fields.Has(field) ? fields.Take(field, Json()) : Json();
  }

  static std::string Text(JsonFields& fields, const std::string& field,
                          const Json& fallback = nullptr) {
    const Json value = fields.Take(field, fallback);
    if (!value.is_string()) fields.RefuseValue(field, value, "allowed: a text");
    return value.get<std::string>();
  }

  static std::string NotEmptyText(JsonFields& fields, const std::string& field,
                                  const Json& fallback = nullptr) {
    std::string text = Text(fields, field, fallback);
    if (text.empty() || text.size() > kMaxTokenizerJsonPieceBytes) {
      fields.Refuse(field, Quoted(text), "allowed: a text of 1 to 4096 bytes");
    }
    return text;
  }

  static Json List(JsonFields& fields, const std::string& field) {
    Json list = fields.Take(field, nullptr);
    if (!list.is_array()) fields.RefuseValue(field, list, "allowed: a list");
    return list;
  }

  static Regex Pattern(Json json, const std::string& source) {
    JsonFields pattern(std::move(json), source + ": pattern");
    const bool literal = pattern.Has("String");
    const std::string field = literal ? "String" : "Regex";
    const std::string text = NotEmptyText(pattern, field);
    pattern.RefuseLeftOver();
    return Regex(text, literal ? Regex::Syntax::kLiteral : Regex::Syntax::kPattern,
                 source + ": pattern." + field);
  }

  void RequireFewSteps(size_t steps, const std::string& source) const {
    if (steps >= kMaxSteps) {
      throw LoadError(source + " has more than " + std::to_string(kMaxSteps) + " steps");
    }
  }

  void ParseNormalizer(Json json, const std::string& source) {
    if (json.is_null()) return;
    RequireFewSteps(parts_.normalizer.size(), source);
    JsonFields fields(std::move(json), source);
    const std::string type = Text(fields, "type");
    std::vector<NormalizerStep>& steps = parts_.normalizer;
    if (type == "NFC") {
      steps.emplace_back(UnicodeForm::kNfc);
    } else if (type == "NFD") {
      steps.emplace_back(UnicodeForm::kNfd);
    } else if (type == "NFKC") {
      steps.emplace_back(UnicodeForm::kNfkc);
    } else if (type == "NFKD") {
      steps.emplace_back(UnicodeForm::kNfkd);
    } else if (type == "Prepend") {
      steps.emplace_back(PrependStep{NotEmptyText(fields, "prepend")});
    } else if (type == "Replace") {
      std::string by = Text(fields, "content");
      const Json what = fields.Take("pattern", nullptr);
      std::optional<size_t> match_bytes;
      if (what.is_object() && what.contains("String") && what["String"].is_string()) {
        match_bytes = what["String"].get_ref<const std::string&>().size();
      }
      steps.emplace_back(ReplaceStep{Pattern(what, source), std::move(by), match_bytes});
    } else if (type == "Strip") {
      const bool left = fields.Bool("strip_left", true);
      steps.emplace_back(StripStep{left, fields.Bool("strip_right", true)});
    } else if (type == "Sequence") {
      Json list = List(fields, "normalizers");
      for (size_t i = 0; i < list.size(); ++i) {
        ParseNormalizer(std::move(list[i]), Indexed(source + ".normalizers", i));
      }
    } else {
      fields.Refuse("type", Quoted(type),
                    "supported: NFC, NFD, NFKC, NFKD, Prepend, Replace, Strip, Sequence");
    }
    fields.RefuseLeftOver();
  }

  static std::string Indexed(const std::string& source, size_t index) {
    return source + "[" + std::to_string(index) + "]";
  }

  void ParsePreTokenizer(Json json, const std::string& source) {
    if (json.is_null()) return;
    RequireFewSteps(parts_.pre_tokenizer.size(), source);
    if (byte_level_) throw LoadError(source + ": comes after ByteLevel; supported: before it");
    JsonFields fields(std::move(json), source);
    const std::string type = Text(fields, "type");
    std::vector<PreTokenizerStep>& steps = parts_.pre_tokenizer;
    if (type == "ByteLevel") {
      byte_level_ = true;
      if (fields.Bool("add_prefix_space", true)) steps.emplace_back(PrefixSpaceStep{});
      if (fields.Bool("use_regex", true)) {
        steps.emplace_back(SplitStep{Regex(kByteLevelPattern, Regex::Syntax::kPattern, source),
                                     SplitBehavior::kIsolated, false});
      }
      fields.Take("trim_offsets", true);  // of offsets, which nobody asks for
    } else if (type == "Split") {
      Regex pattern = Pattern(fields.Take("pattern", nullptr), source);
      const auto behavior = fields.Choice<SplitBehavior>("behavior");
      steps.emplace_back(SplitStep{std::move(pattern), behavior, fields.Bool("invert", false)});
    } else if (type == "Digits") {
      const bool individual = fields.Bool("individual_digits", false);
      steps.emplace_back(
          SplitStep{Regex("\\p{N}", Regex::Syntax::kPattern, source),
                    individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous, false});
    } else if (type == "Metaspace") {
      ParseMetaspace(fields, source);
    } else if (type == "Sequence") {
      Json list = List(fields, "pretokenizers");
      for (size_t i = 0; i < list.size(); ++i) {
        ParsePreTokenizer(std::move(list[i]), Indexed(source + ".pretokenizers", i));
      }
    } else {
      fields.Refuse("type", Quoted(type),
                    "supported: ByteLevel, Split, Digits, Metaspace, Sequence");
    }
    fields.RefuseLeftOver();
  }

  // Older files say add_prefix_space instead, or besides.
  static PrependScheme TakePrependScheme(JsonFields& fields) {
    const bool legacy = fields.Bool("add_prefix_space", true);
    return fields.Choice<PrependScheme>("prepend_scheme", legacy ? "always" : "never");
  }

  void ParseMetaspace(JsonFields& fields, const std::string& source) {
    std::string replacement = NotEmptyText(fields, "replacement", kMetaspace);
    const PrependScheme scheme = TakePrependScheme(fields);
    parts_.pre_tokenizer.emplace_back(MetaspaceStep{replacement, scheme});
    fields.Take("str_rep", "");  // the same again, in files of old
    if (!fields.Bool("split", true)) return;
    parts_.pre_tokenizer.emplace_back(SplitStep{Regex(replacement, Regex::Syntax::kLiteral, source),
                                                SplitBehavior::kMergedWithNext, false});
  }

  void ParseDecoder(Json json, const std::string& source) {
    JsonFields fields(json.is_null() ? Json::object() : std::move(json), source);
    const std::string type = Text(fields, "type");
    const std::string supported =
        "supported: ByteLevel, Metaspace, Sequence of Replace, ByteFallback, Fuse, Strip";
    if (type == "ByteLevel") {
      decoding_.byte_level = true;
      for (const char* option : {"add_prefix_space", "trim_offsets", "use_regex"}) {
        fields.Take(option, true);  // it reads none of them
      }
    } else if (type == "Metaspace") {
      decoding_.replacements.push_back({NotEmptyText(fields, "replacement", kMetaspace), " "});
      decoding_.drops_leading_space = TakePrependScheme(fields) != PrependScheme::kNever;
      fields.Bool("split", true);
      fields.Take("str_rep", "");
    } else if (type == "Sequence") {
      Json list = List(fields, "decoders");
      RequireFewSteps(list.size(), source);
      bool fused = false;
      for (size_t i = 0; i < list.size(); ++i) {
        ParseDecoderStep(std::move(list[i]), Indexed(source + ".decoders", i), fused);
      }
    } else {
      fields.Refuse("type", Quoted(type), supported);
    }
    fields.RefuseLeftOver();
  }

  // Before Fuse a step is of every token, after it of the whole text.
  void ParseDecoderStep(Json json, const std::string& source, bool& fused) {
    JsonFields fields(std::move(json), source);
    const std::string type = Text(fields, "type");
    if (type == "Fuse") {
      fused = true;
    } else if (type == "Strip" && fused) {
      const std::string content = Text(fields, "content");
      const int64_t start = fields.Int("start", {0, 1});
      fields.Int("stop", {0, 0});
      if (content != " ") fields.Refuse("content", Quoted(content), "supported: \" \"");
      decoding_.drops_leading_space = start == 1;
    } else if (type == "ByteFallback" && !fused) {
      decoding_.byte_fallback = true;
    } else if (type == "Replace" && !fused) {
      JsonFields pattern(fields.Take("pattern", nullptr), source + ": pattern");
      std::string what = NotEmptyText(pattern, "String");
      pattern.RefuseLeftOver();
      std::string by = Text(fields, "content");
      if (by.size() > what.size()) {
        fields.Refuse("content", Quoted(by), "supported: no longer than the pattern");
      }
      decoding_.replacements.push_back({std::move(what), std::move(by)});
    } else {
      fields.Refuse("type", Quoted(type),
                    "supported: Replace and ByteFallback, then Fuse, then Strip");
    }
    fields.RefuseLeftOver();
  }

  void ParseModel(Json json) {
    JsonFields fields(std::move(json), source_ + ": model");
    // Files of old do not say it.
    const std::string type = Text(fields, "type", fields.Has("merges") ? "BPE" : "");
    if (type != "BPE") fields.Refuse("type", Quoted(type), "supported: BPE");
    const Json dropout = Optional(fields, "dropout");
    if (!dropout.is_null() && dropout != 0) {
      fields.RefuseValue("dropout", dropout, "supported: null, 0");
    }
    for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const Json value = Optional(fields, affix);
      if (!value.is_null() && value != "")
        fields.RefuseValue(affix, value, "supported: null, \"\"");
    }
    parts_.options.symbols = byte_level_ ? BpeOptions::kBytes : BpeOptions::kCharacters;
    parts_.options.byte_fallback = fields.Bool("byte_fallback", false);
    if (byte_level_ && parts_.options.byte_fallback) {
      fields.Refuse("byte_fallback", "true", "supported with ByteLevel: false");
    }
    parts_.options.fuse_unknown = fields.Bool("fuse_unk", false);
    parts_.options.ignore_merges = fields.Bool("ignore_merges", false);
    ParseVocab(fields);
    const Json unknown = Optional(fields, "unk_token");
    if (!unknown.is_null()) {
      const auto it = unknown.is_string() ? ids_.find(unknown.get<std::string>()) : ids_.end();
      if (it == ids_.end()) {
        fields.RefuseValue("unk_token", unknown, "allowed: null, a token of vocab");
      }
      parts_.options.unknown = it->second;
    }
    ParseMerges(fields);
    fields.RefuseLeftOver();
  }

  void ParseVocab(JsonFields& fields) {
    Json vocab = fields.Take("vocab", nullptr);
    if (!vocab.is_object()) fields.RefuseValue("vocab", vocab, "allowed: an object");
    // Ids may have gaps, and no file may ask for more memory than it is long.
    max_token_ = static_cast<int64_t>(2 * vocab.size() + 4096);
    ids_.reserve(vocab.size());
    for (const auto& [piece, id] : vocab.items()) {
      const auto token = static_cast<int32_t>(
          fields.CheckedInt("vocab[" + Quoted(piece) + "]", id, {0, max_token_}));
      if (piece.size() > kMaxTokenizerJsonPieceBytes) {
        fields.Refuse("vocab", "of " + Quoted(piece), "allowed: pieces of at most 4096 bytes");
      }
      AddPiece(token, piece);
    }
  }

  void AddPiece(int32_t token, const std::string& piece) {
    if (token >= std::ssize(texts_)) texts_.resize(token + 1);
    if (texts_[token]) {
      throw LoadError(source_ + ": " + Quoted(piece) + " is token " + std::to_string(token) +
                      ", which " + Quoted(*texts_[token]) + " is too");
    }
    texts_[token] = piece;
    ids_.emplace(piece, token);
  }

  void ParseMerges(JsonFields& fields) {
    const Json list = List(fields, "merges");
    parts_.merges.reserve(list.size());
    for (size_t i = 0; i < list.size(); ++i) {
      std::optional<std::pair<std::string, std::string>> pair;
      if (list[i].is_string()) {
        const auto& both = list[i].get_ref<const std::string&>();
        const size_t space = both.find(' ');
        if (space != std::string::npos && both.find(' ', space + 1) == std::string::npos) {
          pair = {both.substr(0, space), both.substr(space + 1)};
        }
      } else if (list[i].is_array() && list[i].size() == 2 && list[i][0].is_string() &&
                 list[i][1].is_string()) {
        pair = {list[i][0].get<std::string>(), list[i][1].get<std::string>()};
      }
      const auto id = [&](const std::string& piece) {
        const auto it = ids_.find(piece);
        return it == ids_.end() ? -1 : it->second;
      };
      const int32_t left = pair ? id(pair->first) : -1;
      const int32_t right = pair ? id(pair->second) : -1;
      const int32_t result = pair ? id(pair->first + pair->second) : -1;
      if (left < 0 || right < 0 || result < 0) {
        fields.RefuseValue("merges[" + std::to_string(i) + "]", list[i],
                           "allowed: two tokens of vocab that together are one");
      }
      parts_.merges.push_back({left, right, static_cast<int32_t>(i), result});
    }
  }

  void ParseAddedTokens(const Json& list) {
    if (!list.is_array()) root_.RefuseValue("added_tokens", list, "allowed: a list");
    max_token_ += static_cast<int64_t>(list.size());
    size_t bytes = 0;
    for (size_t i = 0; i < list.size(); ++i) {
      JsonFields fields(list[i], Indexed(source_ + ": added_tokens", i));
      AddedToken token{.token = static_cast<int32_t>(fields.Int("id", {0, max_token_})),
                       .text = Text(fields, "content"),
                       .special = fields.Bool("special", false),
                       .left_strip = fields.Bool("lstrip", false),
                       .right_strip = fields.Bool("rstrip", false),
                       .single_word = fields.Bool("single_word", false),
                       .normalized = false};
      token.normalized = fields.Bool("normalized", !token.special);
      fields.RefuseLeftOver();
      if (token.text.empty() || token.text.size() > kMaxAddedTokenBytes) {
        fields.Refuse("content", Quoted(token.text), "allowed: a text of 1 to 256 bytes");
      }
      bytes += token.text.size();
      if (bytes > kMaxAddedBytes) {
        root_.Refuse("added_tokens",
                     "more than " + std::to_string(kMaxAddedBytes) + " bytes of text",
                     "allowed: at most so many");
      }
      const auto known = ids_.find(token.text);
      if (known == ids_.end()) {
        AddPiece(token.token, token.text);
        outside_vocab_.push_back(token.token);
      } else if (known->second != token.token) {
        fields.Refuse("id", std::to_string(token.token),
                      "in vocab " + Quoted(token.text) + " is " + std::to_string(known->second));
      }
      parts_.added.push_back(std::move(token));
    }
  }

  // What tokens are made of and what they decode to. No text is merged to a special token, and a
  // token that vocab has not is found as an added one alone.
  void FillTokens() {
    std::vector<bool> special(texts_.size());
    std::vector<bool> added(texts_.size());
    for (const AddedToken& token : parts_.added) {
      added[token.token] = true;
      special[token.token] = token.special;
    }
    std::erase_if(parts_.merges, [&](const Merge& merge) { return special[merge.result]; });
    parts_.pieces.resize(texts_.size());
    parts_.decoded.resize(texts_.size());
    for (size_t token = 0; token < texts_.size(); ++token) {
      if (!texts_[token] || special[token]) continue;
      const std::string& text = *texts_[token];
      parts_.pieces[token] = byte_level_ ? ByteLevelBytes(text).value_or("") : text;
      parts_.decoded[token] = added[token] ? text : decoding_.Bytes(text);
    }
    for (const int32_t token : outside_vocab_) parts_.pieces[token].clear();
    parts_.drops_leading_space = decoding_.drops_leading_space;
  }

  void ParsePostProcessor(Json json, const std::string& source) {
    if (json.is_null()) return;
    JsonFields fields(std::move(json), source);
    const std::string type = Text(fields, "type");
    if (type == "ByteLevel") {
      for (const char* option : {"add_prefix_space", "trim_offsets", "use_regex"}) {
        fields.Take(option, true);  // of offsets, which nobody asks for
      }
    } else if (type == "TemplateProcessing") {
      ParseTemplate(fields);
    } else if (type == "Sequence") {
      Json list = List(fields, "processors");
      RequireFewSteps(list.size(), source);
      for (size_t i = 0; i < list.size(); ++i) {
        ParsePostProcessor(std::move(list[i]), Indexed(source + ".processors", i));
      }
    } else {
      fields.Refuse("type", Quoted(type), "supported: TemplateProcessing, ByteLevel, Sequence");
    }
    fields.RefuseLeftOver();
  }

  // At most one token before the text, and one after it.
  void ParseTemplate(JsonFields& fields) {
    const Json single = List(fields, "single");
    fields.Take("pair", "");            // two texts, which nobody asks for
    fields.Take("special_tokens", "");  // the ids that vocab has
    const std::string allowed =
        "supported: at most one special token before the text \"A\" and one after it";
    bool after = false;
    for (const Json& part : single) {
      if (part.is_object() && part.contains("Sequence") && !after) {
        after = true;
        continue;
      }
      std::optional<int32_t>& place = after ? template_end_ : parts_.begin;
      if (!part.is_object() || !part.contains("SpecialToken") || place) {
        fields.RefuseValue("single", single, allowed);
      }
      const Json& named = part["SpecialToken"];
      const bool has_id = named.is_object() && named.contains("id") && named["id"].is_string();
      const auto it = has_id ? ids_.find(named["id"].get<std::string>()) : ids_.end();
      if (it == ids_.end()) fields.RefuseValue("single", single, "allowed: tokens of vocab");
      place = it->second;
    }
    if (!after) fields.RefuseValue("single", single, allowed);
  }

  void AddEnds() {
    const auto add = [&](int32_t token) {
      std::vector<int32_t>& ends = parts_.ends;
      if (std::find(ends.begin(), ends.end(), token) == ends.end()) ends.push_back(token);
    };
    if (ends_.text) {
      const auto it = ids_.find(*ends_.text);
      if (it == ids_.end()) {
        throw LoadError(source_ + ": has no token " + Quoted(*ends_.text) +
                        ", which is to end texts");
      }
      add(it->second);
    }
    for (const int32_t token : ends_.tokens) {
      if (token < 0 || token >= std::ssize(texts_)) {
        throw LoadError(source_ + ": has no token " + std::to_string(token) +
                        ", which is to end texts");
      }
      add(token);
    }
    if (template_end_) add(*template_end_);
    if (parts_.ends.empty()) {
      throw LoadError(source_ + ": no token ends texts; allowed: eos_token in " +
                      "tokenizer_config.json, eos_token_id in generation_config.json");
    }
  }

  const std::string& source_;
  const EndTokens& ends_;
  JsonFields root_;
  BpeTokenizerParts parts_;
  Decoding decoding_;
  bool byte_level_ = false;
  int64_t max_token_ = 0;
  std::vector<std::optional<std::string>> texts_;  // by token, as the file has them
  std::unordered_map<std::string, int32_t, KeyedHash> ids_;
  std::vector<int32_t> outside_vocab_;  // added tokens
  std::optional<int32_t> template_end_;
};

}  // namespace

std::shared_ptr<const Tokenizer> ParseTokenizerJson(std::string_view json,
                                                    const std::string& source,
                                                    const EndTokens& ends) {
  return MakeJsonTokenizer(ParseJson(json, source, kMaxValues), source, ends);
}

std::shared_ptr<const Tokenizer> MakeJsonTokenizer(Json json, const std::string& source,
                                                   const EndTokens& ends) {
  return Parser(std::move(json), source, ends).Parse();
}

}  // namespace triptych::checkpoint
