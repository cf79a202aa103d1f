#include "engine/checkpoint/tokenizer/tokenizer_json.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/quoted.h"
#include "engine/base/utf8.h"
#include "engine/checkpoint/config/json_fields.h"
#include "engine/checkpoint/tokenizer/byte_level.h"
#include "engine/checkpoint/tokenizer/json_decoder.h"
#include "engine/checkpoint/tokenizer/json_model.h"
#include "engine/checkpoint/tokenizer/json_pipeline.h"
#include "engine/checkpoint/tokenizer/json_steps.h"
#include "engine/text/bpe.h"
#include "engine/text/bpe_tokenizer.h"

namespace triptych::checkpoint {
namespace {

// Enough for vocabularies of about 200,000 pieces and their merges.
constexpr size_t kMaxValues = size_t{1} << 22;
class Parser {
 public:
  Parser(Json json, const std::string& source, const TokenizerSettings& settings,
         TokenizerNotes& notes)
      : source_(source), settings_(settings), notes_(notes), root_(std::move(json), source) {}

  std::shared_ptr<const Tokenizer> Parse() {
    root_.Take("version", "");
    // Options of batches in training: served texts are neither truncated nor padded.
    root_.Take("truncation", "");
    root_.Take("padding", "");
    ParseNormalizer(Optional(root_, "normalizer"), source_ + ": normalizer", pipeline_);
    ParsePreTokenizer(Optional(root_, "pre_tokenizer"), source_ + ": pre_tokenizer", pipeline_);
    decoding_ = ParseDecoder(Optional(root_, "decoder"), source_ + ": decoder");
    if (pipeline_.byte_level != decoding_.byte_level) {
      throw LoadError(source_ +
                      ": decoder and pre_tokenizer differ; supported: ByteLevel in both " +
                      "or in neither");
    }
    Json added = root_.Take("added_tokens", Json::array());
    model_ = ParseJsonModel(root_.Take("model", nullptr), source_ + ": model", pipeline_.byte_level,
                            texts_);
    ParseAddedTokens(added);
    ParsePostProcessor(Optional(root_, "post_processor"), source_ + ": post_processor");
    root_.RefuseLeftOver();
    TakeBegin();
    AddEnds();
    FillTokens();
    parts_.normalizer = std::move(pipeline_.normalizer);
    parts_.pre_tokenizer = std::move(pipeline_.pre_tokenizer);
    try {
      return std::make_shared<const BpeTokenizer>(std::move(parts_));
    } catch (const std::runtime_error& e) {  // EncodeError, or ICU has no data
      throw LoadError(source_ + ": added_tokens cannot be normalized: " + e.what());
    }
  }

 private:
  // The field, or null if it is absent.
  static Json Optional(JsonFields& fields, const std::string& field) {
    return fields.Has(field) ? fields.Take(field, Json()) : Json();
  }

  void ParseAddedTokens(const Json& list) {
    if (!list.is_array()) root_.RefuseValue("added_tokens", list, "allowed: a list");
    texts_.Allow(list.size());
    for (size_t i = 0; i < list.size(); ++i) {
      JsonFields fields(list[i], IndexedSource(source_ + ": added_tokens", i));
      AddedToken token{.token = static_cast<int32_t>(fields.Int("id", {0, texts_.max_token()})),
                       .text = fields.Text("content"),
                       .special = fields.Bool("special", false),
                       .left_strip = fields.Bool("lstrip", false),
                       .right_strip = fields.Bool("rstrip", false),
                       .single_word = fields.Bool("single_word", false),
                       .normalized = false};
      token.normalized = fields.Bool("normalized", !token.special);
      fields.RefuseLeftOver();
      if (OnlyEndsTurns(token.text)) MakeSpecial(token);
      if (token.text.empty() || token.text.size() > kMaxAddedTokenBytes) {
        fields.Refuse("content", Quoted(token.text),
                      "allowed: a text of 1 to " + std::to_string(kMaxAddedTokenBytes) + " bytes");
      }
      added_bytes_ += token.text.size();
      if (added_bytes_ > kMaxAddedBytes) {
        root_.Refuse("added_tokens",
                     "more than " + std::to_string(kMaxAddedBytes) + " bytes of text",
                     "allowed: at most " + std::to_string(kMaxAddedBytes));
      }
      const std::optional<int32_t> known = texts_.Find(token.text);
      if (!known) {
        texts_.Add(token.token, token.text);
        outside_vocab_.push_back(token.token);
      } else if (*known != token.token) {
        fields.Refuse("id", std::to_string(token.token),
                      "in vocab " + Quoted(token.text) + " is " + std::to_string(*known));
      }
      parts_.added.push_back(std::move(token));
    }
  }

  // Fills pieces and decoded texts. No merge makes a special token; a token outside of vocab is
  // found only as an added token.
  void FillTokens() {
    const size_t count = texts_.all().size();
    std::vector<bool> special(count);
    std::vector<bool> added(count);
    for (const AddedToken& token : parts_.added) {
      added[token.token] = true;
      special[token.token] = token.special;
    }
    std::vector<std::string> pieces(count);
    parts_.decoded.resize(count);
    for (size_t token = 0; token < count; ++token) {
      if (!texts_.all()[token] || special[token]) continue;
      const std::string& text = *texts_.all()[token];
      pieces[token] = pipeline_.byte_level ? ByteLevelBytes(text).value_or("") : text;
      parts_.decoded[token] = added[token] ? decoding_.before + text : decoding_.Bytes(text);
    }
    for (const int32_t token : outside_vocab_) pieces[token].clear();
    parts_.drops_leading_space = decoding_.drops_leading_space;
    parts_.words = MakeWordModel(model_, texts_, pieces);
    if (parts_.words != nullptr) return;
    std::erase_if(model_.merges, [&](const Merge& merge) { return special[merge.result]; });
    parts_.pieces = std::move(pieces);
    parts_.merges = std::move(model_.merges);
    parts_.options = std::move(model_.options);
  }

  void ParsePostProcessor(Json json, const std::string& source) {
    if (json.is_null()) return;
    JsonFields fields(std::move(json), source);
    const std::string type = fields.Text("type");
    if (type == "ByteLevel") {
      for (const char* option : {"add_prefix_space", "trim_offsets", "use_regex"}) {
        fields.Take(option, true);  // of offsets, which are not served
      }
    } else if (type == "TemplateProcessing") {
      ParseTemplate(fields);
    } else if (type == "Sequence") {
      Json list = fields.List("processors");
      RequireFewSteps(list.size(), source);
      for (size_t i = 0; i < list.size(); ++i) {
        ParsePostProcessor(std::move(list[i]), IndexedSource(source + ".processors", i));
      }
    } else {
      fields.Refuse("type", Quoted(type), "supported: TemplateProcessing, ByteLevel, Sequence");
    }
    fields.RefuseLeftOver();
  }

  // Allows at most one token before the text and one after it.
  void ParseTemplate(JsonFields& fields) {
    const Json single = fields.List("single");
    fields.Take("pair", "");            // of two texts, which are not served
    fields.Take("special_tokens", "");  // repeats ids of vocab
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
      place = has_id ? texts_.Find(named["id"]) : std::nullopt;
      if (!place) fields.RefuseValue("single", single, "allowed: tokens of vocab");
    }
    if (!after) fields.RefuseValue("single", single, allowed);
  }

  // A class that puts a begin token before texts by itself replaces the post-processor.
  void TakeBegin() {
    if (parts_.begin) notes_.begin = "post_processor of tokenizer.json";
    if (!settings_.class_begins) return;
    if (!settings_.begins.value_or(*settings_.class_begins)) {
      parts_.begin.reset();
      notes_.begin.clear();
      return;
    }
    const std::optional<int32_t> begin = texts_.Find(settings_.begin_text.value_or(""));
    if (!begin) {
      notes_.warnings.push_back("tokenizer_config.json: bos_token " +
                                Quoted(settings_.begin_text.value_or("")) +
                                " is no token of tokenizer.json, and is passed over");
      return;
    }
    parts_.begin = begin;
    notes_.begin = "bos_token of tokenizer_config.json, by its tokenizer_class";
  }

  void AddEnds() {
    if (settings_.end_text) {
      const std::optional<int32_t> end = texts_.Find(*settings_.end_text);
      if (!end) {
        throw LoadError(source_ + ": has no token " + Quoted(*settings_.end_text) +
                        ", which is to end texts");
      }
      AddEnd(*end, "eos_token of tokenizer_config.json");
    }
    for (const int32_t token : settings_.end_tokens) {
      if (token >= std::ssize(texts_.all())) {
        notes_.warnings.push_back(settings_.end_tokens_file + ": eos_token_id " +
                                  std::to_string(token) +
                                  " is no token of the tokenizer, and is passed over");
        continue;
      }
      AddEnd(token, "eos_token_id of " + settings_.end_tokens_file);
    }
    if (template_end_) AddEnd(*template_end_, "post_processor of tokenizer.json");
    if (parts_.ends.empty()) {
      throw LoadError(source_ + ": no token ends texts; allowed: eos_token in " +
                      "tokenizer_config.json, eos_token_id in generation_config.json");
    }
  }

  void AddEnd(int32_t token, const std::string& from) {
    std::vector<int32_t>& ends = parts_.ends;
    if (std::find(ends.begin(), ends.end(), token) != ends.end()) return;
    ends.push_back(token);
    notes_.ends.emplace(token, from);
    const auto added = std::find_if(parts_.added.begin(), parts_.added.end(),
                                    [&](const AddedToken& each) { return each.token == token; });
    if (added != parts_.added.end()) {
      MakeSpecial(*added);
      return;
    }
    // A token of merges becomes a special one, except if texts cannot do without it.
    const std::optional<std::string>& given = texts_.all()[token];
    if (!given || given->empty() || IsSymbol(*given)) return;
    const std::string& text = *given;
    added_bytes_ += text.size();
    if (text.size() > kMaxAddedTokenBytes || added_bytes_ > kMaxAddedBytes) return;
    parts_.added.push_back({.token = token, .text = text, .special = true});
  }

  // As transformers treats a token that is named as special, although its flag is false.
  static void MakeSpecial(AddedToken& token) {
    if (token.special) return;
    token.special = true;
    token.normalized = false;
  }

  // Whether a piece is what words consist of before the first merge.
  bool IsSymbol(const std::string& piece) const {
    return FirstUtf8Piece(piece).length == piece.size() || FallbackByte(piece).has_value();
  }

  const std::string& source_;
  const TokenizerSettings& settings_;
  TokenizerNotes& notes_;
  JsonFields root_;
  BpeTokenizerParts parts_;
  TextPipeline pipeline_;
  Decoding decoding_;
  TokenTexts texts_{source_};
  JsonModel model_;
  std::vector<int32_t> outside_vocab_;  // added tokens
  std::optional<int32_t> template_end_;
  size_t added_bytes_ = 0;  // of the texts of added tokens
};

}  // namespace

std::shared_ptr<const Tokenizer> ParseTokenizerJson(std::string_view json,
                                                    const std::string& source,
                                                    const TokenizerSettings& settings,
                                                    TokenizerNotes* notes) {
  return MakeJsonTokenizer(ParseJson(json, source, kMaxValues), source, settings, notes);
}

std::shared_ptr<const Tokenizer> MakeJsonTokenizer(Json json, const std::string& source,
                                                   const TokenizerSettings& settings,
                                                   TokenizerNotes* notes) {
  TokenizerNotes unread;
  return Parser(std::move(json), source, settings, notes != nullptr ? *notes : unread).Parse();
}

}  // namespace triptych::checkpoint
