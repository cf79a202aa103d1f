#include "engine/grammar/vocabulary.h"

#include <algorithm>
#include <limits>
#include <string_view>

namespace triptych::grammar {
namespace {

constexpr size_t kMaxParts = 4;  // that a vocabulary keeps

}  // namespace

Vocabulary::Vocabulary(std::span<const std::string> texts)
    : size_(static_cast<int32_t>(texts.size())) {
  constexpr size_t kLongest = std::numeric_limits<uint16_t>::max();
  std::vector<TokenTrie::Node>& nodes = trie_.nodes_;
  std::vector<int32_t>& tokens = trie_.tokens_;
  for (int32_t token = 0; token < size_; ++token) {
    const size_t bytes = texts[token].size();
    if (bytes == 0 || bytes > kLongest) continue;
    tokens.push_back(token);
    max_bytes_ = std::max(max_bytes_, static_cast<int32_t>(bytes));
  }
  std::sort(tokens.begin(), tokens.end(), [&](int32_t a, int32_t b) {
    const int order = texts[a].compare(texts[b]);
    return order != 0 ? order < 0 : a < b;
  });
  std::vector<int32_t> path;  // nodes of the last text
  const auto shorten = [&](size_t length) {
    for (; path.size() > length; path.pop_back()) {
      nodes[path.back()].after = static_cast<int32_t>(nodes.size());
    }
  };
  std::string_view last;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string_view text = texts[tokens[i]];
    const auto [end, unused] = std::mismatch(text.begin(), text.end(), last.begin(), last.end());
    shorten(end - text.begin());
    while (path.size() < text.size()) {
      path.push_back(static_cast<int32_t>(nodes.size()));
      nodes.push_back({.first_token = static_cast<int32_t>(i),
                       .depth = static_cast<uint16_t>(path.size() - 1),
                       .byte = static_cast<uint8_t>(text[path.size() - 1])});
    }
    last = text;
  }
  shorten(0);
}

std::shared_ptr<const Vocabulary::Parts> Vocabulary::Split(const ByteSet& bytes) const {
  const auto is_it = [&](const auto& entry) { return entry.first == bytes; };
  {
    const MutexLock lock(mutex_);
    const auto found = std::find_if(parts_.begin(), parts_.end(), is_it);
    if (found != parts_.end()) {
      parts_.splice(parts_.begin(), parts_, found);
      return parts_.front().second;
    }
  }
  std::shared_ptr<const Parts> made = MakeParts(bytes);
  const MutexLock lock(mutex_);
  if (std::none_of(parts_.begin(), parts_.end(), is_it)) parts_.emplace_front(bytes, made);
  if (parts_.size() > kMaxParts) parts_.pop_back();
  return made;
}

std::shared_ptr<const Vocabulary::Parts> Vocabulary::MakeParts(const ByteSet& bytes) const {
  const std::vector<TokenTrie::Node>& nodes = trie_.nodes_;
  auto parts = std::make_shared<Parts>();
  parts->only.resize((size_ + 63) / 64);
  std::vector<bool> has_other(nodes.size());  // a byte that is not in the set
  std::vector<bool> kept(nodes.size());
  std::vector<int32_t> parents(nodes.size(), -1);
  std::vector<int32_t> path(max_bytes_);
  for (size_t n = 0; n < nodes.size(); ++n) {
    const TokenTrie::Node& node = nodes[n];
    path[node.depth] = static_cast<int32_t>(n);
    if (node.depth > 0) parents[n] = path[node.depth - 1];
    has_other[n] = !bytes[node.byte] || (node.depth > 0 && has_other[parents[n]]);
    const std::span<const int32_t> tokens = trie_.TokensOf(n);
    kept[n] = has_other[n] && !tokens.empty();
    if (has_other[n]) continue;
    for (const int32_t token : tokens) parts->only[token / 64] |= uint64_t{1} << (token % 64);
  }
  std::vector<int32_t> numbers(nodes.size() + 1);  // in the new trie, of a node or the next kept
  for (size_t n = nodes.size(); n > 0; --n) {
    if (kept[n - 1] && parents[n - 1] >= 0) kept[parents[n - 1]] = true;
  }
  int32_t count = 0;
  for (size_t n = 0; n < nodes.size(); ++n) {
    numbers[n] = count;
    if (kept[n]) ++count;
  }
  numbers[nodes.size()] = count;
  TokenTrie& others = parts->others;
  others.nodes_.reserve(count);
  for (size_t n = 0; n < nodes.size(); ++n) {
    if (!kept[n]) continue;
    TokenTrie::Node node = nodes[n];
    node.after = numbers[node.after];
    node.first_token = static_cast<int32_t>(others.tokens_.size());
    others.nodes_.push_back(node);
    if (!has_other[n]) continue;
    const std::span<const int32_t> tokens = trie_.TokensOf(n);
    others.tokens_.insert(others.tokens_.end(), tokens.begin(), tokens.end());
  }
  return parts;
}

}  // namespace triptych::grammar
