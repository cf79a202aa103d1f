#include "engine/checkpoint/tokenizer/json_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/quoted.h"
#include "engine/checkpoint/tokenizer/json_steps.h"
#include "engine/text/unigram.h"
#include "engine/text/word_level.h"

namespace triptych::checkpoint {
namespace {

class ModelParser {
 public:
  ModelParser(Json json, const std::string& source, bool byte_level, TokenTexts& texts)
      : fields_(std::move(json), source), byte_level_(byte_level), texts_(texts) {}

  JsonModel Parse() {
    // Older files have no type.
    const std::string type = fields_.Text("type", fields_.Has("merges") ? "BPE" : "");
    if (type == "BPE") {
      TakeBpe();
    } else if (type == "Unigram") {
      TakeUnigram();
    } else if (type == "WordLevel") {
      TakeWordLevel();
    } else {
      fields_.Refuse("type", Quoted(type), "supported: BPE, Unigram, WordLevel");
    }
    if (byte_level_ && model_.kind != JsonModelKind::kBpe) {
      fields_.Refuse("type", Quoted(type), "supported with ByteLevel: BPE");
    }
    if (byte_level_ && model_.options.byte_fallback) {
      fields_.Refuse("byte_fallback", "true", "supported with ByteLevel: false");
    }
    fields_.RefuseLeftOver();
    return std::move(model_);
  }

 private:
  // The field, or null if it is absent.
  Json Optional(const std::string& field) {
    return fields_.Has(field) ? fields_.Take(field, Json()) : Json();
  }

  void TakeBpe() {
    const Json dropout = Optional("dropout");
    if (!dropout.is_null() && dropout != 0) {
      fields_.RefuseValue("dropout", dropout, "supported: null, 0");
    }
    for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const Json value = Optional(affix);
      if (!value.is_null() && value != "")
        fields_.RefuseValue(affix, value, "supported: null, \"\"");
    }
    model_.options.symbols = byte_level_ ? BpeOptions::kBytes : BpeOptions::kCharacters;
    model_.options.byte_fallback = fields_.Bool("byte_fallback", false);
    model_.options.fuse_unknown = fields_.Bool("fuse_unk", false);
    model_.options.ignore_merges = fields_.Bool("ignore_merges", false);
    TakeVocab();
    const Json unknown = Optional("unk_token");
    if (!unknown.is_null()) {
      const auto token = unknown.is_string() ? texts_.Find(unknown) : std::nullopt;
      if (!token) fields_.RefuseValue("unk_token", unknown, "allowed: null, a token of vocab");
      model_.options.unknown = token;
    }
    TakeMerges();
  }

  void TakeWordLevel() {
    model_.kind = JsonModelKind::kWordLevel;
    TakeVocab();
    const Json unknown = Optional("unk_token");
    const auto token = unknown.is_string() ? texts_.Find(unknown) : std::nullopt;
    if (!token) fields_.RefuseValue("unk_token", unknown, "allowed: a token of vocab");
    model_.options.unknown = token;
  }

  void TakeUnigram() {
    model_.kind = JsonModelKind::kUnigram;
    model_.options.byte_fallback = fields_.Bool("byte_fallback", false);
    const Json list = fields_.List("vocab");
    texts_.Allow(list.size());
    for (size_t i = 0; i < list.size(); ++i) {
      const Json& piece = list[i];
      const bool is_pair = piece.is_array() && piece.size() == 2 && piece[0].is_string() &&
                           piece[1].is_number() && std::isfinite(piece[1].get<double>());
      if (!is_pair || piece[0].get_ref<const std::string&>().size() > Unigram::kMaxPieceBytes) {
        fields_.RefuseValue("vocab[" + std::to_string(i) + "]", piece,
                            "allowed: a text of at most " +
                                std::to_string(Unigram::kMaxPieceBytes) + " bytes, and a number");
      }
      const auto& text = piece[0].get_ref<const std::string&>();
      if (texts_.Find(text)) {
        fields_.RefuseValue("vocab[" + std::to_string(i) + "]", piece, "another token is that too");
      }
      texts_.Add(static_cast<int32_t>(i), text);
      model_.scores.push_back(piece[1].get<double>());
    }
    const Json unknown = Optional("unk_id");
    if (!unknown.is_null()) {
      model_.options.unknown =
          static_cast<int32_t>(fields_.CheckedInt("unk_id", unknown, {0, std::ssize(list) - 1}));
    }
  }

  void TakeVocab() {
    const Json vocab = fields_.Take("vocab", nullptr);
    if (!vocab.is_object()) fields_.RefuseValue("vocab", vocab, "allowed: an object");
    texts_.Allow(2 * vocab.size() + 4096);
    for (const auto& [piece, id] : vocab.items()) {
      const auto token = static_cast<int32_t>(
          fields_.CheckedInt("vocab[" + Quoted(piece) + "]", id, {0, texts_.max_token()}));
      if (piece.size() > kMaxTokenizerJsonPieceBytes) {
        fields_.Refuse(
            "vocab", "of " + Quoted(piece),
            "allowed: pieces of at most " + std::to_string(kMaxTokenizerJsonPieceBytes) + " bytes");
      }
      texts_.Add(token, piece);
    }
  }

  void TakeMerges() {
    const Json list = fields_.List("merges");
    model_.merges.reserve(list.size());
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
      const auto id = [&](const std::string& piece) { return texts_.Find(piece).value_or(-1); };
      const int32_t left = pair ? id(pair->first) : -1;
      const int32_t right = pair ? id(pair->second) : -1;
      const int32_t result = pair ? id(pair->first + pair->second) : -1;
      if (left < 0 || right < 0 || result < 0) {
        fields_.RefuseValue("merges[" + std::to_string(i) + "]", list[i],
                            "allowed: two tokens of vocab that together are one");
      }
      model_.merges.push_back({left, right, static_cast<int32_t>(i), result});
    }
  }

  JsonFields fields_;
  const bool byte_level_;
  TokenTexts& texts_;
  JsonModel model_;
};

}  // namespace

void TokenTexts::Add(int32_t token, const std::string& text) {
  if (token >= std::ssize(texts_)) texts_.resize(token + 1);
  if (texts_[token]) {
    throw LoadError(source_ + ": " + Quoted(text) + " is token " + std::to_string(token) +
                    ", which " + Quoted(*texts_[token]) + " is too");
  }
  texts_[token] = text;
  ids_.emplace(text, token);
}

std::optional<int32_t> TokenTexts::Find(const std::string& text) const {
  const auto it = ids_.find(text);
  if (it == ids_.end()) return std::nullopt;
  return it->second;
}

JsonModel ParseJsonModel(Json json, const std::string& source, bool byte_level, TokenTexts& texts) {
  return ModelParser(std::move(json), source, byte_level, texts).Parse();
}

std::unique_ptr<const WordModel> MakeWordModel(const JsonModel& model, const TokenTexts& texts,
                                               std::vector<std::string> pieces) {
  switch (model.kind) {
    case JsonModelKind::kBpe:
      return nullptr;
    case JsonModelKind::kWordLevel:
      return std::make_unique<const WordLevel>(std::move(pieces), *model.options.unknown);
    case JsonModelKind::kUnigram:
      break;
  }
  UnigramParts parts{.pieces = std::move(pieces),
                     .scores = model.scores,
                     .lowest_score = 0,
                     .unknown = model.options.unknown,
                     .bytes = {}};
  if (!parts.scores.empty()) {
    parts.lowest_score = *std::min_element(parts.scores.begin(), parts.scores.end());
  }
  parts.scores.resize(parts.pieces.size());  // added tokens are no pieces
  if (model.options.byte_fallback) {
    parts.bytes.assign(256, -1);
    for (size_t token = 0; token < texts.all().size(); ++token) {
      const auto& text = texts.all()[token];
      const std::optional<char> byte = text ? FallbackByte(*text) : std::nullopt;
      if (!byte) continue;
      parts.bytes[static_cast<unsigned char>(*byte)] = static_cast<int32_t>(token);
      parts.pieces[token].clear();  // the name of a byte in a text is text
    }
    const auto& bytes = parts.bytes;
    if (std::find(bytes.begin(), bytes.end(), -1) != bytes.end()) parts.bytes.clear();
  }
  return std::make_unique<const Unigram>(std::move(parts));
}

}  // namespace triptych::checkpoint
