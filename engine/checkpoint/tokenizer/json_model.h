// The model of a tokenizer.json: its vocabulary, and how words become tokens.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_JSON_MODEL_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_JSON_MODEL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/keyed_hash.h"
#include "engine/checkpoint/config/json_fields.h"
#include "engine/text/bpe.h"
#include "engine/text/word_model.h"

namespace triptych::checkpoint {

// Texts of tokens. Ids may have gaps, but memory is in proportion to the file.
class TokenTexts {
 public:
  // `source` names the file in messages.
  explicit TokenTexts(const std::string& source) : source_(source) {}

  // Allows ids for `count` more tokens.
  void Allow(size_t count) { max_token_ += static_cast<int64_t>(count); }
  int64_t max_token() const { return max_token_; }
  // Throws LoadError if the token has a text already.
  void Add(int32_t token, const std::string& text);

  // By token; absent in gaps.
  const std::vector<std::optional<std::string>>& all() const { return texts_; }
  std::optional<int32_t> Find(const std::string& text) const;

 private:
  const std::string& source_;
  int64_t max_token_ = 0;
  std::vector<std::optional<std::string>> texts_;
  std::unordered_map<std::string, int32_t, KeyedHash> ids_;
};

enum class JsonModelKind { kBpe, kUnigram, kWordLevel };

struct JsonModel {
  JsonModelKind kind = JsonModelKind::kBpe;
  std::vector<Merge> merges = {};   // of BPE
  BpeOptions options = {};          // of BPE; of the other models `unknown` and `byte_fallback`
  std::vector<double> scores = {};  // of Unigram, by token
};

// Parses a model and adds its tokens to `texts`. `byte_level`: words are in the alphabet of
// byte_level.h. `source` names the model in messages. Throws LoadError.
JsonModel ParseJsonModel(Json json, const std::string& source, bool byte_level, TokenTexts& texts);

// The model of words that consist of `pieces`, "" for other tokens; null for BPE.
std::unique_ptr<const WordModel> MakeWordModel(const JsonModel& model, const TokenTexts& texts,
                                               std::vector<std::string> pieces);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_JSON_MODEL_H_
