// Vocabulary of whole words.
#ifndef TRIPTYCH_ENGINE_TEXT_WORD_LEVEL_H_
#define TRIPTYCH_ENGINE_TEXT_WORD_LEVEL_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/base/keyed_hash.h"
#include "engine/text/word_model.h"

namespace triptych {

// A word is one token: its own, or the unknown token.
class WordLevel final : public WordModel {
 public:
  // `words`: by token; "" for tokens that are no words. REQUIRES: words other than "" are distinct.
  WordLevel(std::vector<std::string> words, int32_t unknown)
      : words_(std::move(words)), unknown_(unknown) {
    tokens_.reserve(words_.size());
    for (size_t token = 0; token < words_.size(); ++token) {
      if (!words_[token].empty()) tokens_.emplace(words_[token], static_cast<int32_t>(token));
    }
  }
  WordLevel(const WordLevel&) = delete;
  WordLevel& operator=(const WordLevel&) = delete;

  void Encode(std::string_view word, std::vector<int32_t>& tokens) const override {
    const auto found = tokens_.find(word);
    tokens.push_back(found == tokens_.end() ? unknown_ : found->second);
  }
  std::optional<size_t> MaxTokenBytes() const override { return std::nullopt; }
  std::string_view kind() const override { return "WordLevel"; }

 private:
  std::vector<std::string> words_;
  std::unordered_map<std::string_view, int32_t, KeyedHash> tokens_;
  int32_t unknown_;
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_TEXT_WORD_LEVEL_H_
