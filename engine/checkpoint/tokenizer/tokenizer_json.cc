#include "engine/checkpoint/tokenizer/tokenizer_json.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/keyed_hash.h"
#include "engine/base/quoted.h"
#include "engine/checkpoint/config/json_fields.h"
#include "engine/checkpoint/tokenizer/byte_level.h"
#include "engine/checkpoint/tokenizer/json_decoder.h"
#include "engine/checkpoint/tokenizer/json_pipeline.h"
#include "engine/checkpoint/tokenizer/json_steps.h"
#include "engine/text/bpe_tokenizer.h"

namespace triptych::checkpoint {
namespace {

// Enough for vocabularies of about 200,000 pieces and their merges.
constexpr size_t kMaxValues = size_t{1} << 22;
class Parser {
 public:
  Parser(Json json, const std::string& source, const EndTokens& ends)
      : source_(source), ends_(ends), root_(std::move(json), source) {}

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
    ParseModel(root_.Take("model", nullptr));
    ParseAddedTokens(added);
    FillTokens();
    ParsePostProcessor(Optional(root_, "post_processor"), source_ + ": post_processor");
    root_.RefuseLeftOver();
    AddEnds();
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

  void ParseModel(Json json) {
    JsonFields fields(std::move(json), source_ + ": model");
    // Older files have no type.
    const std::string type = fields.Text("type", fields.Has("merges") ? "BPE" : "");
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
    parts_.options.symbols = pipeline_.byte_level ? BpeOptions::kBytes : BpeOptions::kCharacters;
    parts_.options.byte_fallback = fields.Bool("byte_fallback", false);
    if (pipeline_.byte_level && parts_.options.byte_fallback) {
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
    // Ids may have gaps, but memory must be in proportion to the file.
    max_token_ = static_cast<int64_t>(2 * vocab.size() + 4096);
    ids_.reserve(vocab.size());
    for (const auto& [piece, id] : vocab.items()) {
      const auto token = static_cast<int32_t>(
          fields.CheckedInt("vocab[" + Quoted(piece) + "]", id, {0, max_token_}));
      if (piece.size() > kMaxTokenizerJsonPieceBytes) {
        fields.Refuse(
            "vocab", "of " + Quoted(piece),
            "allowed: pieces of at most " + std::to_string(kMaxTokenizerJsonPieceBytes) + " bytes");
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
    const Json list = fields.List("merges");
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
      JsonFields fields(list[i], IndexedSource(source_ + ": added_tokens", i));
      AddedToken token{.token = static_cast<int32_t>(fields.Int("id", {0, max_token_})),
                       .text = fields.Text("content"),
                       .special = fields.Bool("special", false),
                       .left_strip = fields.Bool("lstrip", false),
                       .right_strip = fields.Bool("rstrip", false),
                       .single_word = fields.Bool("single_word", false),
                       .normalized = false};
      token.normalized = fields.Bool("normalized", !token.special);
      fields.RefuseLeftOver();
      if (token.text.empty() || token.text.size() > kMaxAddedTokenBytes) {
        fields.Refuse("content", Quoted(token.text),
                      "allowed: a text of 1 to " + std::to_string(kMaxAddedTokenBytes) + " bytes");
      }
      bytes += token.text.size();
      if (bytes > kMaxAddedBytes) {
        root_.Refuse("added_tokens",
                     "more than " + std::to_string(kMaxAddedBytes) + " bytes of text",
                     "allowed: at most " + std::to_string(kMaxAddedBytes));
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

  // Fills pieces and decoded texts. No merge makes a special token; a token outside of vocab is
  // found only as an added token.
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
      parts_.pieces[token] = pipeline_.byte_level ? ByteLevelBytes(text).value_or("") : text;
      parts_.decoded[token] = added[token] ? text : decoding_.Bytes(text);
    }
    for (const int32_t token : outside_vocab_) parts_.pieces[token].clear();
    parts_.drops_leading_space = decoding_.drops_leading_space;
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
  TextPipeline pipeline_;
  Decoding decoding_;
  int64_t max_token_ = 0;
  std::vector<std::optional<std::string>> texts_;  // by token, as in the file
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
