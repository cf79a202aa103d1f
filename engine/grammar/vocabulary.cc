#include "engine/grammar/vocabulary.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "engine/base/utf8.h"

namespace triptych::grammar {
namespace {

// A mask looks at each character of the longest plain token; longer ones are few.
constexpr int32_t kMaxPlainCharacters = 32;

// The characters of a plain token; absent if it is not plain.
std::optional<int32_t> PlainCharacters(std::string_view text) {
  int32_t characters = 0;
  for (; !text.empty(); ++characters) {
    const Utf8Piece piece = FirstUtf8Piece(text);
    const auto first = static_cast<unsigned char>(text.front());
    const bool is_plain = piece.kind == Utf8Piece::kCharacter && first >= 0x20 && first != '"' &&
                          first != '\\' && characters < kMaxPlainCharacters;
    if (!is_plain) return std::nullopt;
    text.remove_prefix(piece.length);
  }
  return characters;
}

}  // namespace

TokenTrie::TokenTrie(std::span<const std::string> texts, std::vector<int32_t> tokens)
    : tokens_(std::move(tokens)) {
  std::sort(tokens_.begin(), tokens_.end(), [&](int32_t a, int32_t b) {
    const int order = texts[a].compare(texts[b]);
    return order != 0 ? order < 0 : a < b;
  });
  std::vector<int32_t> path;  // nodes of the last text
  const auto shorten = [&](size_t length) {
    for (; path.size() > length; path.pop_back()) {
      nodes_[path.back()].after = static_cast<int32_t>(nodes_.size());
    }
  };
  std::string_view last;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const std::string_view text = texts[tokens_[i]];
    const auto [end, unused] = std::mismatch(text.begin(), text.end(), last.begin(), last.end());
    shorten(end - text.begin());
    while (path.size() < text.size()) {
      path.push_back(static_cast<int32_t>(nodes_.size()));
      nodes_.push_back({.first_token = static_cast<int32_t>(i),
                        .depth = static_cast<uint16_t>(path.size() - 1),
                        .byte = static_cast<uint8_t>(text[path.size() - 1])});
    }
    last = text;
  }
  shorten(0);
}

Vocabulary::Vocabulary(std::span<const std::string> texts)
    : size_(static_cast<int32_t>(texts.size())) {
  constexpr size_t kLongest = std::numeric_limits<uint16_t>::max();
  std::vector<int32_t> all, others;
  std::map<int32_t, std::vector<int32_t>> plain;  // by characters
  for (int32_t token = 0; token < size_; ++token) {
    const size_t bytes = texts[token].size();
    if (bytes == 0 || bytes > kLongest) continue;
    all.push_back(token);
    max_bytes_ = std::max(max_bytes_, static_cast<int32_t>(bytes));
    if (const auto characters = PlainCharacters(texts[token])) {
      plain[*characters].push_back(token);
    } else {
      others.push_back(token);
    }
  }
  all_ = TokenTrie(texts, std::move(all));
  others_ = TokenTrie(texts, std::move(others));
  TokenMask mask((size_ + 63) / 64);
  plain_.push_back({.characters = 0, .mask = mask});
  for (const auto& [characters, tokens] : plain) {
    for (const int32_t token : tokens) mask[token / 64] |= uint64_t{1} << (token % 64);
    plain_.push_back({.characters = characters, .mask = mask});
  }
}

}  // namespace triptych::grammar
